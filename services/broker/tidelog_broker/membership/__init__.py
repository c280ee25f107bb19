"""This broker as a member of its cluster: its registration, and its view of the metadata."""
