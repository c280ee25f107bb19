"""Directories of Parquet files as jobs keep them: one writer, and readers who need no library."""
