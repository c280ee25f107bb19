"""The history checker on Spark, with a history that is larger than memory."""
