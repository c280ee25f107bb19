"""The benches of the Makefile can be imported on the search path with which it starts them."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

_ROOT = Path(__file__).resolve().parents[3]
# The variable with which targets start a bench, and its search path.
_BENCH = re.compile(r"^BENCH := PYTHONPATH=(\S+) \$\(BIN\)/python -m (bench)$", re.MULTILINE)
# The client of NATS has a lock file of its own, which the target installs first.
_IMPORT = """
import importlib, sys
for name in sys.argv[1:]:
    try:
        module = importlib.import_module(name)
        if hasattr(module, "__path__"):
            importlib.import_module(name + ".__main__")
    except ModuleNotFoundError as error:
        if error.name != "nats":
            raise
"""


def test_every_bench_of_the_makefile_can_be_imported() -> None:
    text = (_ROOT / "Makefile").read_text()
    search_path, package = _BENCH.search(text).groups()  # type: ignore[union-attr]
    started = sorted({package + rest for rest in re.findall(r"\$\(BENCH\)(\S*)", text)})
    assert len(started) > 10
    run = subprocess.run(
        [sys.executable, "-c", _IMPORT, *started],
        cwd=_ROOT,
        env={**os.environ, "PYTHONPATH": search_path},
        capture_output=True,
        text=True,
        check=False,
    )
    assert run.returncode == 0, run.stderr


def test_the_makefile_starts_no_bench_another_way() -> None:
    text = (_ROOT / "Makefile").read_text()
    assert re.findall(r"-m (bench\S*)", text) == ["bench"]
