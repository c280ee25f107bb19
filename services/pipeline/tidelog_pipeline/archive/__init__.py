"""Archives topics as directories of Parquet, each record once: `tidelog_pipeline archive`."""
