"""Directories of Parquet files: one job writes them, and readers need no library."""
