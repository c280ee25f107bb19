"""`tidelog apply`: the file of topics, the differences, their plan, and the changes."""
