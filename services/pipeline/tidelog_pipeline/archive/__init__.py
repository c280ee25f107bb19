"""Topics as directories of Parquet, each record once: `python -m tidelog_pipeline archive`."""
