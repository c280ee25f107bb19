"""The gRPC interfaces of the broker: one file per service, and the client for other brokers. Only
these modules of the broker import generated code."""
