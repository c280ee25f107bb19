"""What services tell about themselves."""
