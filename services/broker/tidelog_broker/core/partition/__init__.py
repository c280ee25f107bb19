"""One replica of one partition: its decisions as pure functions, and its state.

Code in here does no I/O of its own and knows neither asyncio nor the wire. The log and the time are
parameters, so that a model checker and a simulator run the very same code."""
