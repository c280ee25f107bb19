"""The controller's knowledge, and the values that enter and leave its core."""
