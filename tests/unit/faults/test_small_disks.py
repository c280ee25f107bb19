"""A machine on which no disk can be mounted reports the reason and leaves nothing behind."""

from __future__ import annotations

from pathlib import Path

import pytest

from faults.__main__ import main
from faults.small_disks import why_no_small_disks


def program(directory: Path, name: str, script: str) -> None:
    path = directory / name
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)


@pytest.fixture
def programs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The only programs that exist."""
    directory = tmp_path / "programs"
    directory.mkdir()
    monkeypatch.setenv("PATH", str(directory))
    return directory


async def test_a_failed_mount_is_the_reason(tmp_path: Path, programs: Path) -> None:
    program(programs, "mkfs.ext4", "exit 0")
    program(programs, "mount", "echo permission denied >&2; exit 32")
    program(programs, "umount", "exit 32")
    why = await why_no_small_disks(tmp_path / "probe")
    assert why.endswith("ended with 32: permission denied")
    assert not (tmp_path / "probe").exists()


@pytest.mark.usefixtures("programs")
async def test_a_missing_program_is_the_reason(tmp_path: Path) -> None:
    why = await why_no_small_disks(tmp_path / "probe")
    assert why.startswith("mkfs.ext4 does not run here")
    assert not (tmp_path / "probe").exists()


async def test_a_mountable_disk_leaves_no_reason(tmp_path: Path, programs: Path) -> None:
    for name in ("mkfs.ext4", "mount", "umount"):
        program(programs, name, "exit 0")
    assert await why_no_small_disks(tmp_path / "probe") == ""
    assert not (tmp_path / "probe").exists()


def test_a_directory_that_holds_an_earlier_run_is_rejected(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "run-1").mkdir()
    with pytest.raises(SystemExit) as caught:
        main(["--local", f"--directory={tmp_path}"])
    assert caught.value.code == 2
    assert f"{tmp_path} holds something already" in capsys.readouterr().err
    assert [path.name for path in tmp_path.iterdir()] == ["run-1"]
