"""Metrics of a broker: counted as requests pass, and collected from its replicas at a scrape."""
