"""gRPC, in and out: the only modules of the controller that know generated code."""
