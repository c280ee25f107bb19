"""gRPC at the edge: channels in one place, and the wire form of shared values."""
