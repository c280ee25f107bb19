"""Pure decision rules: elections, recovery after data loss, placement and balancing of replicas."""
