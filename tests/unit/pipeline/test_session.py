from pathlib import Path

import pytest

from tidelog_pipeline.session import to_read


@pytest.mark.parametrize(
    ("path", "text"),
    [
        ("/data/my archive#1", "/data/my archive#1"),
        ("/data/[1]{a,b}", r"/data/\[1\]\{a,b\}"),
        ("/data/a*b?", r"/data/a\*b\?"),
        ("/data/a\\b", r"/data/a\\b"),
    ],
)
def test_a_path_is_not_read_as_a_pattern(path: str, text: str) -> None:
    assert to_read(Path(path)) == text
