"""One replica of one partition: its decisions as pure functions, and its state.

Nothing in here does I/O of its own, knows asyncio or the wire: the log and the time are
passed in, so that a model checker and a simulator run the very same code.
"""
