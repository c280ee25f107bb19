"""Handling of damaged data, and of replicas that are not assigned."""
