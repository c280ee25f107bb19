"""Generated from proto/tidelog/v1 by `make proto`; not to be edited."""
