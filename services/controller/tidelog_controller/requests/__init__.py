"""Handlers of admin requests."""
