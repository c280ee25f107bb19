"""The cost of very many partitions, on a real cluster and in a controller alone."""
