"""The history checker for histories that are too large for one machine.

It applies the rules of the checker, each to independent parts of a history.
"""
