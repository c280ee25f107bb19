"""What users of Tidelog import: the client, its types and errors, and the CLI."""
