"""The command `tidelog`, with one file for each command group. It uses only the client."""
