"""What brokers have yet to be told, and to tell."""
