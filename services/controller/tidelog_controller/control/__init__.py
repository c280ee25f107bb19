"""Level-triggered commands to brokers, and the acknowledgements of brokers."""
