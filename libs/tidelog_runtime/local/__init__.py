"""A complete cluster on one machine, for the demo, tests and first steps."""
