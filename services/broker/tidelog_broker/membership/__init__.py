"""This broker as a member of its cluster: what it tells, and what it knows."""
