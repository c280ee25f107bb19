"""Who leads, who is elected after a loss, where replicas lie. Pure functions."""
