"""The commands and the Python programs of the documentation work on a running cluster."""

from __future__ import annotations

import asyncio
import os
import re
import shutil
import sys
from collections.abc import AsyncIterator, Iterable, Mapping
from pathlib import Path

import pytest
import pytest_asyncio

from documented import (
    BACKUP,
    CHANGING,
    DIRECTORY,
    KAFKA_CLIENTS,
    LOCAL,
    PYTHON,
    README,
    REST,
    UPGRADES,
    blocks,
    commands,
    read,
    tour,
)
from integration.clusters import running_cluster
from integration.shell import tidelog
from integration.topics import create_topic, describe, read_values, until_in_sync, write
from integration.waiting import until
from tidelog.cli.exit_status import ExitStatus
from tidelog.client import Admin
from tidelog.client.partitioner import partition_for_key
from tidelog_runtime.local.cluster import LocalCluster

TIMEOUT_SECONDS = 60
DIGEST = re.compile(r"--expected-plan (\w+)")
APPLY = "tidelog apply"
RUNNING = ("operations", "list", "--state", "running", "--json")
CANCEL = "tidelog operations cancel grow --yes"
CURL = "curl --silent --show-error --fail --max-time 5 "
# The exit status of curl after its `--max-time`.
CURL_TIMEOUT = 28


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def cluster(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[LocalCluster]:
    async with running_cluster(tmp_path_factory.mktemp("documented"), gateway=True) as running:
        yield running


async def run(
    cluster: LocalCluster,
    command: str,
    *,
    directory: Path | None = None,
    status: int = ExitStatus.DONE,
) -> str:
    """The output of a command that ends with this status."""
    programs = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    process = await asyncio.create_subprocess_shell(
        command,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        stdin=asyncio.subprocess.DEVNULL,
        cwd=directory,
        env={**os.environ, "PATH": programs, "TIDELOG_BOOTSTRAP": cluster.bootstrap},
    )
    async with asyncio.timeout(TIMEOUT_SECONDS):
        output, errors = await process.communicate()
    assert process.returncode == status, f"{command}: {output.decode()} {errors.decode()}"
    return output.decode()


async def digest(cluster: LocalCluster, directory: Path, command: str) -> str:
    """The digest of the present plan of a command that has the placeholder DIGEST."""
    planned = command.partition(" --yes")[0].partition(" --expected-plan")[0]
    output = await run(
        cluster,
        f"{planned} --dry-run 2>&1 || test $? = {ExitStatus.DRIFT}",
        directory=directory,
    )
    found = DIGEST.search(output)
    assert found, f"{planned} shows no digest: {output}"
    return found[1]


async def run_all(
    cluster: LocalCluster,
    given: Iterable[str],
    directory: Path,
    statuses: Mapping[str, int] | None = None,
) -> dict[str, str]:
    """The outputs of commands, in the order of the page. `statuses`: those that are not 0."""
    outputs = {}
    for command in given:
        runs = command
        if "DIGEST" in command:
            runs = command.replace("DIGEST", await digest(cluster, directory, command))
        status = (statuses or {}).get(command, ExitStatus.DONE)
        outputs[command] = await run(cluster, runs, directory=directory, status=status)
    return outputs


async def only_topic(cluster: LocalCluster, topic: str, partitions: int = 1) -> None:
    """Deletes all topics, and creates this one."""
    async with Admin(cluster.bootstrap) as admin:
        for described in await admin.list_topics():
            await admin.delete_topic(described.name)
    await create_topic(cluster, topic, partitions)


async def until_no_operation(cluster: LocalCluster) -> None:
    async def none_runs() -> bool:
        return not (await tidelog(cluster, *RUNNING)).document()

    await until(none_runs, "every operation has ended")


async def test_the_tour_writes_and_reads(cluster: LocalCluster) -> None:
    given = [command for command in tour() if DIRECTORY not in command]
    assert len(given) == 12
    outputs = [await run(cluster, command) for command in given]
    assert sorted(outputs[3].split()) == ["north:calm", "north:swell", "south:storm"]
    assert '"still"' in outputs[7]
    assert "All is well" in outputs[8]
    assert "become_leader" in outputs[9]
    assert outputs[11] == "Every partition of topic sea has a leader.\n"


async def test_a_cluster_changes_as_the_page_shows(cluster: LocalCluster, tmp_path: Path) -> None:
    await only_topic(cluster, "sea", partitions=6)
    assert cluster.add_broker() == 4
    await cluster.ready()
    *changes, choice = [c for c in commands(read(CHANGING)) if not c.startswith(APPLY)]
    assert len(changes) == 16
    before, after = changes[:6], changes[6:]
    assert after[0].startswith("tidelog rebalance")
    # The operation has ended.
    await run_all(cluster, before, tmp_path, {CANCEL: ExitStatus.FAILED})
    # So that the rebalance has something to move.
    moves = " ".join(f"sea/{partition}=1,2,3" for partition in range(6))
    await run(cluster, f"tidelog reassign {moves} --yes --watch")
    await run_all(cluster, after[:2], tmp_path)
    await until_no_operation(cluster)
    await run_all(cluster, after[2:], tmp_path)
    described = await until_in_sync(cluster, "sea")
    assert len(described.partitions) == 4
    assert all(4 not in partition.replicas for partition in described.partitions)
    # Only a replica that leads already can be chosen while no leader is missing.
    leader = described.partitions[3].leader
    assert "sea/3=2" in choice
    await run(cluster, choice.replace("sea/3=2", f"sea/3={leader}"))
    await run(cluster, "tidelog brokers maintenance 3 --off")


async def test_topics_become_what_the_page_declares(cluster: LocalCluster, tmp_path: Path) -> None:
    await only_topic(cluster, "sea", partitions=4)
    page = read(CHANGING)
    (declared,) = blocks("yaml", page)
    (tmp_path / "topics.yaml").write_text(declared)
    await create_topic(cluster, "undeclared")
    applied = [c for c in commands(page) if c.startswith(APPLY)]
    assert len(applied) == 3
    await run_all(cluster, applied, tmp_path, {applied[0]: ExitStatus.DRIFT})
    async with Admin(cluster.bootstrap) as admin:
        assert [one.name for one in await admin.list_topics()] == ["bay", "sea"]


async def test_a_backup_is_restored_as_the_page_shows(
    cluster: LocalCluster, tmp_path: Path
) -> None:
    """The other cluster is this one, once its topics have been deleted."""
    await only_topic(cluster, "sea")
    await write(cluster, "sea", [b"calm", b"storm"])
    documented = [
        command.replace("/backups", str(tmp_path)).replace("new-cluster:7501", cluster.bootstrap)
        for command in commands(read(BACKUP))
    ]
    assert len(documented) == 4
    await run_all(cluster, documented[:2], tmp_path)
    await only_topic(cluster, "bay")
    await run_all(cluster, documented[2:], tmp_path)
    assert await read_values(cluster, "sea") == [b"calm", b"storm"]


async def test_the_feature_level_is_raised_as_the_page_shows(
    cluster: LocalCluster, tmp_path: Path
) -> None:
    outputs = await run_all(cluster, commands(read(UPGRADES)), tmp_path)
    assert len(outputs) == 2
    assert all("feature level" in output for output in outputs.values())


async def test_a_pipe_copies_a_topic_as_the_page_shows(cluster: LocalCluster) -> None:
    await only_topic(cluster, "sea")
    await create_topic(cluster, "bay")
    await write(cluster, "sea", [b"calm", b"storm"])
    copy, create = commands(read(LOCAL))
    await run(cluster, copy)
    assert await read_values(cluster, "bay") == [b"calm", b"storm"]
    await only_topic(cluster, "bay")
    await run(cluster, create)
    assert (await describe(cluster, "sea")).config["retention_ms"] == str(7 * 86_400_000)


@pytest.mark.skipif(shutil.which("curl") is None, reason="needs curl")
async def test_the_gateway_answers_what_the_page_requests(cluster: LocalCluster) -> None:
    await only_topic(cluster, "sea")
    documented = commands(read(REST))
    assert len(documented) == 11
    for command in documented:
        request = command.replace("localhost:7600", cluster.gateway_address)
        assert request != command
        # Only the stream of events never ends.
        status = CURL_TIMEOUT if "/stream" in command else 0
        output = await run(cluster, request.replace("curl ", CURL, 1), status=status)
        assert output or status, command


async def run_programs(cluster: LocalCluster, page: str, topic: str) -> str:
    """The output of all Python programs of a page, which write to this topic instead of `sea`."""
    program = "\n".join(blocks("python", read(page)))
    program = program.replace("127.0.0.1:7501", cluster.bootstrap).replace('"sea"', f'"{topic}"')
    return await run(cluster, f"{sys.executable} - <<'PROGRAM'\n{program}PROGRAM")


async def test_the_python_example_reads_what_it_wrote(cluster: LocalCluster) -> None:
    await create_topic(cluster, "example", 3)
    output = await run_programs(cluster, README, "example")
    assert output == f"{partition_for_key(b'north', 3)} 0 b'north' b'calm'\n"


async def test_the_python_page_reads_what_it_wrote(cluster: LocalCluster) -> None:
    await create_topic(cluster, "page", 1)
    output = await run_programs(cluster, PYTHON, "page")
    lines = ["0 b'north' b'calm'", "0 b'north' b'calm'", "1 b'south' b'storm'"]
    assert output.splitlines() == lines


async def test_the_programs_for_users_of_kafka_clients_print_what_the_page_shows(
    cluster: LocalCluster,
) -> None:
    output = await run_programs(cluster, KAFKA_CLIENTS, "unused")
    assert output == "".join(blocks("text", read(KAFKA_CLIENTS)))
