"""The controller's decisions without I/O: event in, commands out."""
