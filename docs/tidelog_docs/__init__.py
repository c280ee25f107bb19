"""The documentation site: `make docs` fills generated references into the pages of the repository
and builds them with MkDocs."""
