"""Jobs on Spark over what a cluster holds: `python -m tidelog_pipeline JOB`."""
