"""The controller: elects leaders, creates and deletes topics, and detects failed brokers."""
