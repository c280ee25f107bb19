"""The replicas that the controller assigned to this broker."""
