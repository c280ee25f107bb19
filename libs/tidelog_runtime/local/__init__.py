"""A whole cluster on one machine, for the demo, the tests and a first look."""
