"""What services tell about themselves, and what follows from it."""
