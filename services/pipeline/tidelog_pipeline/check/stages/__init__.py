"""Stages of the check, each on one group of rows. Pure: no Spark, no files."""
