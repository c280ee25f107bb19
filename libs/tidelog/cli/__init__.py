"""The command `tidelog`: one file a command group. It knows only the client."""
