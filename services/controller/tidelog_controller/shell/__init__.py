"""Carries out the core's commands and returns their results to it as events."""
