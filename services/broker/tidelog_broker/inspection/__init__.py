"""How this broker and its replicas stand, for whoever asks by `Inspect`."""
