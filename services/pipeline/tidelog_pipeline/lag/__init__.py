"""The lag of followers and Spark queries: samples in a topic, and tables of them."""
