"""gRPC servers and clients: the only modules of the controller that import generated code."""
