"""Errors of a local cluster."""


class ClusterError(Exception):
    """The cluster cannot run as requested; `str(error)` names part, reason and remedy."""
