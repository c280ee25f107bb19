"""Measures Tidelog beside the limit of the machine, in one run: `make bench`."""
