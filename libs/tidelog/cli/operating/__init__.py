"""What the commands that change a running cluster share."""
