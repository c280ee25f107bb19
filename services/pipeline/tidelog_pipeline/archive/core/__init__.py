"""Rules of the archive as pure functions: no Spark, no files."""
