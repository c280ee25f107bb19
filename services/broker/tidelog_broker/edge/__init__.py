"""Where the broker meets gRPC: one file per service, and the client to other brokers.
The only modules of the broker that know generated code."""
