"""What goes wrong with a local cluster."""


class ClusterError(Exception):
    """The cluster cannot be as it should; `str(error)` says which part, why, and what
    would be right."""
