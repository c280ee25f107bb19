"""The state of this broker and its replicas, for the Inspect API."""
