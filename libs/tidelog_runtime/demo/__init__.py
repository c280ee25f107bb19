"""`make demo`: real data through a real cluster whose leader and controller are killed."""
