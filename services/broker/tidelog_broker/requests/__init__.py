"""Requests of clients and followers, and where they wait."""
