"""`make dashboards`: writes the JSON of all dashboards to a directory, and deletes other JSON files
there."""

from __future__ import annotations

import sys
from pathlib import Path

from tidelog_dashboards.dashboards import files


def main(directory: Path) -> None:
    directory.mkdir(parents=True, exist_ok=True)
    written = files()
    for name, content in written.items():
        (directory / name).write_text(content)
    for old in sorted(directory.glob("*.json")):
        if old.name not in written:
            old.unlink()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
