"""Requests to a running `make up` to start a part again.

Another process writes a file with the part's name into the cluster's directory. The file is
deleted once the answer is written beside it.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

from tidelog_runtime.local import ClusterError
from tidelog_runtime.local.cluster_file import read_cluster_file
from tidelog_runtime.local.commands import cluster_command, options_of
from tidelog_runtime.local.data_directory import DirectoryLock, check_space, os_error

_FOLDER = "start"
_ANSWER = ".answer"
_NAME = re.compile(r"[a-z][a-z0-9-]{0,60}")
WAIT_SECONDS = 10.0
_POLL_SECONDS = 0.1


def request_start(
    directory: Path, name: str, *, sleep: Callable[[float], None] = time.sleep
) -> None:
    """Returns once the part was started. Raises `ClusterError`."""
    if not _NAME.fullmatch(name):
        raise ClusterError(f"{name!r} is no part of a cluster; give one as broker-2")
    if DirectoryLock.holder(directory) is None:
        known = read_cluster_file(directory)
        raise ClusterError(
            f"no cluster runs in {directory}; start it: "
            f"{cluster_command(directory, options_of(known) if known else None)}"
        )
    check_space(directory)
    folder = directory / _FOLDER
    folder.mkdir(exist_ok=True)
    request, answer = folder / name, folder / (name + _ANSWER)
    answer.unlink(missing_ok=True)
    request.touch()
    for _ in range(round(WAIT_SECONDS / _POLL_SECONDS)):
        if not request.exists():
            break
        sleep(_POLL_SECONDS)
    else:
        request.unlink(missing_ok=True)
        raise ClusterError(f"the cluster in {directory} did not answer in {WAIT_SECONDS:g} s")
    if not answer.exists():
        raise ClusterError(
            f"the cluster in {directory} could not write its answer; its output names {name} if "
            "it was started"
        )
    problem = answer.read_text()
    answer.unlink(missing_ok=True)
    if problem:
        raise ClusterError(problem)


def answer_requests(directory: Path, start: Callable[[str], None]) -> Iterator[str]:
    """Carries out the pending requests; yields the names of parts that were started."""
    folder = directory / _FOLDER
    if not folder.is_dir():
        return
    for request in sorted(folder.iterdir()):
        name = request.name
        if name.endswith(_ANSWER):
            continue
        problem = ""
        try:
            start(name)
        except ClusterError as error:
            problem = str(error)
        except OSError as error:
            problem = str(os_error(directory, error))
        answer = folder / (name + _ANSWER)
        try:
            answer.write_text(problem)
        except OSError:
            # Without an answer the requester does not report a success.
            with suppress(OSError):
                answer.unlink(missing_ok=True)
        # In any case: a request that stays would be carried out again.
        with suppress(OSError):
            request.unlink(missing_ok=True)
        if not problem:
            yield name
