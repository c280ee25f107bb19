"""The documented programs and commands for Spark work on a running cluster, as written."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

from documented import SPARK, SPARK_JOBS, blocks, commands, read
from spark.running import Running

TIMEOUT_S = 300
ROOT = Path(__file__).parents[2]
PATHS = os.pathsep.join(str(ROOT / folder) for folder in ("libs", "services/pipeline"))


def done(cluster: Running, command: str, directory: Path) -> str:
    """The standard output of a command that ends with status 0; it writes files in `directory`."""
    process = subprocess.run(
        ["bash", "-c", command.replace("/tmp/", f"{directory}/")],
        env={
            **os.environ,
            "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
            "PYTHONPATH": PATHS,
            "TIDELOG_BOOTSTRAP": cluster.bootstrap,
        },
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        check=False,
    )
    assert process.returncode == 0, f"{command}: {process.stderr[-4_000:]}"
    return process.stdout


def test_the_program_copies_a_topic(cluster: Running, tmp_path: Path) -> None:
    (program,) = blocks("python", read(SPARK))
    names = {name: cluster.new_topic(partitions=2) for name in ("sea", "land")}
    for name, topic in names.items():
        program = program.replace(f'"{name}"', f'"{topic}"')
    program = program.replace("127.0.0.1:7501", cluster.bootstrap)
    output = done(cluster, f"python - <<'PROGRAM'\n{program}PROGRAM", tmp_path)
    assert len(re.findall(r"^\| *v\d+\|", output, re.MULTILINE)) == 2 * 5
    assert len(cluster.records(names["land"])) == 1000


def test_a_topic_becomes_an_archive_in_five_minutes(cluster: Running, tmp_path: Path) -> None:
    topic = cluster.new_topic(partitions=1)
    cluster.fill(topic, 0, [b"calm", b"storm"])
    # Commands of the lag job have tests of their own.
    documented = [c for c in commands(read(SPARK_JOBS)) if " lag " not in c]
    assert documented[0].startswith("make spark")
    outputs = [done(cluster, c.replace(" sea ", f" {topic} "), tmp_path) for c in documented[1:]]
    assert len(outputs) == 5
    assert all(value in outputs[-1] for value in ("calm", "storm", "ebb"))
