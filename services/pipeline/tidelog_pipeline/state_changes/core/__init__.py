"""State changes as rows of tables and as a page. Pure: no Spark, no files."""
