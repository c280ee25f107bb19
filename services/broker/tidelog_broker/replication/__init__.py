"""Following leaders, being followed, and what leads to a change of an ISR."""
