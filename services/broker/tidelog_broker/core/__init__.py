"""The decisions of a broker, without I/O and without an event loop: state and events in, decisions
out.

The packages around it carry out what is decided here. import-linter checks the whole package."""
