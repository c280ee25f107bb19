"""Which of the collected tests belong to a suite."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import pytest


def own_items(items: Iterable[pytest.Item], conftest: str) -> list[pytest.Item]:
    """The tests beside and below this conftest.

    When several suites run at once, the hook `pytest_collection_modifyitems` of each sees the tests
    of all."""
    here = Path(conftest).parent
    return [item for item in items if item.path.is_relative_to(here)]
