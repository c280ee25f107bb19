"""The web console in a real browser, over a live cluster with thousands of partitions."""
