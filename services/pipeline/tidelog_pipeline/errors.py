"""Errors of jobs, besides those of the libraries."""


class JobError(Exception):
    """An input of a job is missing or not as required; the message says what is required."""
