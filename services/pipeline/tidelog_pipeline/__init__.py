"""Spark jobs over the contents of a cluster: `python -m tidelog_pipeline JOB`."""
