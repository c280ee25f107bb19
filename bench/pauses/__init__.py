"""How long one request can hold a service's event loop."""
