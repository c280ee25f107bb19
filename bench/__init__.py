"""Measures Tidelog beside the machine's own limit, in one run: `make bench`."""
