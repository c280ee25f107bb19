"""What the controller knows, and the values that come into its core and go out."""
