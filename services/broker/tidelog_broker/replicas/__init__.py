"""The replicas that the controller gave to this broker."""
