"""Statements that many documents repeat are the same everywhere."""

import re
from pathlib import Path

import pytest

from bench.published import MAKE_UP_SECONDS, MAKE_UP_SIZE, read_rows
from documented import README, pages
from tidelog.phrases import PREFERRED_RETURN
from tidelog_admin_api.bodies.broker_bodies import MaintenanceRequest
from tidelog_controller.controller_config import ControllerConfig

REPOSITORY = Path(__file__).parents[3]
PLACES = (
    "docs/operations/changing-a-cluster.md",
    "libs/tidelog/cli/brokers.py",
    "libs/tidelog/cli/leaders.py",
    "proto/tidelog/v1/admin.proto",
    "services/admin-api/tidelog_admin_api/console/app/format.js",
    "services/admin-api/tidelog_admin_api/resources/leaders.py",
)
SOURCES = (
    "libs/**/*.py",
    "services/**/*.py",
    "services/**/*.js",
    "proto/**/*.proto",
    "*.md",
    "docs/**/*.md",
)


@pytest.mark.parametrize("place", PLACES)
def test_every_statement_on_preferred_leadership_is_the_same(place: str) -> None:
    text = re.sub(r"\s+(?://(?= ))?\s*", " ", (REPOSITORY / place).read_text())
    assert PREFERRED_RETURN in text


def test_the_openapi_document_has_the_statement_on_maintenance() -> None:
    text = MaintenanceRequest.model_fields["maintenance"].description
    assert text is not None
    assert PREFERRED_RETURN in text


def test_the_statement_has_the_defaults_of_the_controller() -> None:
    fields = ControllerConfig.model_fields
    minutes = fields["leader_balance_interval_ms"].default // 60_000
    assert f"({minutes} minutes)" in PREFERRED_RETURN
    assert f"({fields['leader_imbalance_percent'].default} %)" in PREFERRED_RETURN
    assert fields["leader_balance"].default is True


def test_there_is_no_other_statement_on_it() -> None:
    others = re.compile(
        r"come back by automatic balance|go back to (the )?preferred|"
        r"returns by the rules of leader_balance",
    )
    sources = [
        path
        for pattern in SOURCES
        for path in REPOSITORY.glob(pattern)
        if "vendor" not in path.parts
    ]
    assert [str(p) for p in sources if others.search(p.read_text())] == []


# Of `make up` and `make demo`: megabytes, and seconds.
SET_UP = re.compile(r"sets up (\d+) MB in `\.venv`, in (\d+) s on an idle machine")
ANOTHER_SET_UP = re.compile(
    r"\b(?:sets? up|set-up|installs?)\b(?:[^.|]|\.(?=\S))*?\b\d+ (?:MB|packages)\b"
)


def test_the_readme_alone_states_size_and_duration_of_the_set_up() -> None:
    texts = {page: " ".join(page.read_text().split()) for page in pages()}
    assert [page.name for page, text in texts.items() if ANOTHER_SET_UP.search(text)] == [README]
    ((megabytes, seconds),) = SET_UP.findall(texts[REPOSITORY / README])
    measured = {
        row["name"]: float(row["value"]) for row in read_rows() if row["bench"] == "packages"
    }
    assert int(megabytes) == round(measured[MAKE_UP_SIZE])
    assert int(seconds) == round(measured[MAKE_UP_SECONDS])
    assert ANOTHER_SET_UP.search(
        "it installs what it needs in `.venv`: some 40 packages in a minute"
    )
