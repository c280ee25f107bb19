"""Requests to a running `make up` to start a part again, or to start another broker.

Another process writes a file with the part's name into the cluster's directory. The file is
deleted once the answer is written beside it.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Protocol

from tidelog_runtime.local import ClusterError, NoSuchPartError
from tidelog_runtime.local.addresses import part_name
from tidelog_runtime.local.cluster_file import read_cluster_file
from tidelog_runtime.local.commands import MAX_MEMBERS, cluster_command, options_of
from tidelog_runtime.local.data_directory import DirectoryLock, check_space, os_error

_FOLDER = "start"
_ANSWER = ".answer"
_NAME = re.compile(r"[a-z][a-z0-9-]{0,60}")
WAIT_SECONDS = 10.0
_POLL_SECONDS = 0.1


class GrowingCluster(Protocol):
    """A running cluster that restarts its parts and starts further brokers."""

    @property
    def broker_ids(self) -> Sequence[int]: ...

    def add_broker(self) -> int: ...

    def restart(self, name: str) -> None: ...


def start_part(cluster: GrowingCluster, name: str) -> None:
    """Starts a part that has ended, or another broker if `name` has the next broker id.

    Raises `ClusterError` for other names, for a running part, and if the disk is full."""
    new = _new_broker(cluster.broker_ids)
    if part_name(name) != new:
        try:
            cluster.restart(name)
        except NoSuchPartError as error:
            raise NoSuchPartError(f"{error}; {new} adds a broker") from None
        return
    if len(cluster.broker_ids) >= MAX_MEMBERS:
        raise ClusterError(f"a cluster on one machine has at most {MAX_MEMBERS} brokers")
    cluster.add_broker()


def start_report(directory: Path, name: str) -> str:
    """Returns the line that reports the start of the part. Call it before the request."""
    name = part_name(name)
    known = read_cluster_file(directory)
    brokers = [] if known is None else [broker.id for broker in known.brokers]
    if name != _new_broker(brokers):
        return f"{name} was started again."
    return (
        f"{name} was started. It gets replicas of new topics; to move existing partitions to it: "
        f"tidelog brokers add {name.removeprefix('broker-')}"
    )


def _new_broker(broker_ids: Sequence[int]) -> str:
    return f"broker-{max(broker_ids, default=0) + 1}"


def request_start(
    directory: Path, name: str, *, sleep: Callable[[float], None] = time.sleep
) -> None:
    """Returns once the part was started. Raises `ClusterError`."""
    name = part_name(name)
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
