"""What jobs raise besides what the libraries raise."""


class JobError(Exception):
    """What a job needs is not there, or not as it has to be: the message says what would be."""
