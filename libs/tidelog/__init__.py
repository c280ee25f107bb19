"""Tidelog for its users: the client, its types and errors, and the CLI."""
