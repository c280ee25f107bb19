"""The real disk, beyond what tests/contract checks of every disk."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

import pytest

from tidelog_broker.log.disk import OsDisk


def test_more_buffers_than_one_system_call_takes_are_written(tmp_path: Path) -> None:
    file = OsDisk().open(tmp_path / "f", create=True)
    file.write_at(0, [b"%04d" % i for i in range(3000)])
    assert file.read_at(4, 4 * 2999) == b"2999"
    file.close()


def test_a_partial_write_is_continued(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    whole_write = os.pwritev

    def write_a_part(descriptor: int, buffers: Sequence[bytes], position: int) -> int:
        return whole_write(descriptor, [b"".join(buffers)[:3]], position)

    monkeypatch.setattr(os, "pwritev", write_a_part)
    file = OsDisk().open(tmp_path / "f", create=True)
    file.write_at(0, [b"abcd", b"efgh"])
    assert file.read_at(100, 0) == b"abcdefgh"
    file.close()
