"""What administrators ask of the controller."""
