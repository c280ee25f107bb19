"""What clients and followers ask of a broker, and where their requests wait."""
