"""Event in, commands out: decides, without I/O."""
