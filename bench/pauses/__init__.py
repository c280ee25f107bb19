"""How long one request can block the event loop of a service."""
