"""A cluster that grows and shrinks under load."""
