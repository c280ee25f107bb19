"""A whole cluster on one machine: for `make up`, the demo and the tests."""


class ClusterError(Exception):
    """The cluster cannot run as requested; `str(error)` names part, reason and remedy."""


class NoSuchPartError(ClusterError):
    """The cluster has no part of that name; `str(error)` names the parts that it has."""
