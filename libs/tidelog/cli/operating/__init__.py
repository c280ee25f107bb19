"""Code that is shared by the commands that change a running cluster."""
