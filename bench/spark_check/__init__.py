"""The history checker on Spark, on a history that fits in no memory."""
