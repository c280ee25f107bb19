"""What very many partitions cost: on a real cluster, and in a controller alone."""
