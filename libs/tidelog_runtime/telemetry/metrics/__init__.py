"""The metrics of services, in Prometheus' format."""
