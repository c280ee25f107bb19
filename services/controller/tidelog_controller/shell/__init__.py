"""Carries out what the core commands, and tells it what came of it."""
