"""Replication: following leaders, sessions of followers, and changes of the ISR."""
