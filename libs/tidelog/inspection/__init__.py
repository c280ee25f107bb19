"""The state that services report about themselves, and the diagnosis that follows from it."""
