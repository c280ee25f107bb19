"""The history checker over histories that are too large for one machine: its own rules, each
over parts of a history that need nothing of each other."""
