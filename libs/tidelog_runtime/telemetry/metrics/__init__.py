"""What services measure, as Prometheus reads it."""
