"""How far followers and Spark's queries are behind: samples in a topic, and what they amount to."""
