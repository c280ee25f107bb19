"""The commands and programs in README.md and docs/ that tests execute.

Every line of a ```console block is executed as it stands, and so is every ```python block; a
```text block after it is its output. Programs in ```py blocks are those of other clients: they are
only compiled. Commands in blocks without a language need other machines, or take long: they are
only parsed. Other blocks are for reading only."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[1]
README = "README.md"
CONTAINERS = "docs/getting-started/containers.md"
SPARK = "docs/getting-started/spark.md"
GUARANTEES = "docs/concepts/guarantees.md"
KAFKA_CLIENTS = "docs/getting-started/coming-from-kafka-clients.md"
PYTHON = "docs/getting-started/python.md"
TESTING = "docs/getting-started/testing.md"
SPARK_JOBS = "docs/integrations/spark-jobs.md"
LOCAL = "docs/getting-started/local.md"
CHANGING = "docs/operations/changing-a-cluster.md"
BACKUP = "docs/operations/backup.md"
UPGRADES = "docs/operations/upgrades.md"
REST = "docs/integrations/rest-and-console.md"
# The pages of the tour, in the order in which their commands are executed.
TOUR = (README, CONTAINERS, GUARANTEES)
COMPOSE = "docker-compose "
# Commands that ask for confirmation, by their beginnings after `tidelog `.
ASKING = (
    "apply ",
    "brokers add",
    "brokers remove",
    "cluster upgrade",
    "operations cancel",
    "recovery choose",
    "topics alter-config",
    "topics recover",
    "topics remove-partitions",
)
# The data directory of `make up`; the clusters of tests have other directories.
DIRECTORY = ".tidelog/"


def pages() -> list[Path]:
    return [*sorted(ROOT.glob("*.md")), *sorted((ROOT / "docs").rglob("*.md"))]


def read(page: str) -> str:
    """`page`: its path in the repository."""
    return (ROOT / page).read_text()


def anchor(heading: str) -> str:
    """The anchor that GitHub derives from a heading."""
    return re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")


def blocks(language: str, text: str) -> list[str]:
    """The blocks of that language, without the indentation of those in lists."""
    # All languages, since an end looks like the beginning of a block without a language.
    found = re.findall(r"^( *)```(\w*)\n(.*?)^\1```$", text, re.MULTILINE | re.DOTALL)
    return [
        re.sub(rf"^{indentation}", "", block, flags=re.MULTILINE)
        for indentation, of, block in found
        if of == language
    ]


def commands(text: str) -> list[str]:
    """The commands of the console blocks without their comments.

    Commands that ask for confirmation get --yes, because tests run without a terminal."""
    lines = [line[2:] for line in _shell_lines(blocks("console", text))]
    stripped = [re.sub(r"\s+#.*", "", line) for line in lines]
    return [f"{c} --yes" if _asks(c) else c for c in stripped]


def _asks(command: str) -> bool:
    asks = command.startswith(tuple(f"tidelog {beginning}" for beginning in ASKING))
    return asks and "--yes" not in command and "--dry-run" not in command


def shown_lines(text: str) -> list[str]:
    """The lines of the blocks that may show commands, executed or not, without prompts."""
    lines = _shell_lines([*blocks("console", text), *blocks("", text)])
    return [re.sub(r"^\s*(?:\$ )?", "", line) for line in lines]


def _shell_lines(given: list[str]) -> list[str]:
    """The lines of blocks; those that a backslash continues are one."""
    return [line for block in given for line in re.sub(r"\\\n\s*", "", block).splitlines()]


def tour() -> list[str]:
    """The commands for a running cluster of `make up`."""
    starts = ("make ", ". ", COMPOSE)
    return [c for c in _commands_of_the_tour() if not c.startswith(starts)]


def tour_in_containers() -> list[str]:
    """The tour for containers. Commands that name processes or files of this machine are replaced
    by those of the page about containers; its further commands come last."""
    instead = iter([c for c in _commands_of_the_tour() if c.startswith(COMPOSE)])
    return [*(next(instead) if DIRECTORY in c else c for c in tour()), *instead]


def _commands_of_the_tour() -> list[str]:
    return [command for page in TOUR for command in commands(read(page))]
