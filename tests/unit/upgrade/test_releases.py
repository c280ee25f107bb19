"""The source tree of the previous release, and clear reasons why there is none."""

from __future__ import annotations

from pathlib import Path

import pytest

from upgrade.releases import (
    RELEASES_FILE,
    KnownRelease,
    ReleaseError,
    known_releases,
    previous_release,
    source_tree,
)

MISSING = KnownRelease("0.0.9", "0" * 40)


def written(directory: Path, text: str) -> Path:
    file = directory / "releases.toml"
    file.write_text(text)
    return file


def test_every_recorded_release_has_a_version_and_a_commit() -> None:
    assert known_releases(RELEASES_FILE)


@pytest.mark.parametrize(
    "text",
    [
        "",
        '[[release]]\nversion = "0.1.0"\n',
        '[[release]]\nversion = "first"\ncommit = "' + "a" * 40 + '"\n',
        '[[release]]\nversion = "0.1.0"\ncommit = "d23b8fe0"\n',
    ],
)
def test_an_incomplete_record_is_rejected(tmp_path: Path, text: str) -> None:
    with pytest.raises(ReleaseError, match="release"):
        known_releases(written(tmp_path, text))


def test_a_commit_that_the_clone_lacks_is_named_with_the_remedy(tmp_path: Path) -> None:
    with pytest.raises(ReleaseError, match=f"{MISSING.commit}.*git fetch --unshallow"):
        source_tree(MISSING, tmp_path)
    assert not list(tmp_path.iterdir())


def test_this_source_tree_may_not_have_the_version_of_the_previous_release(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("upgrade.releases.__version__", "0.1.0")
    with pytest.raises(ReleaseError, match="next version"):
        previous_release(trees=tmp_path)
