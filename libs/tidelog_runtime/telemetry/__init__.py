"""Events, logs, metrics and self-descriptions of services."""
