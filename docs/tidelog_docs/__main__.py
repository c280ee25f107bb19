"""`make docs`: builds the site in `out/site` and writes `out/docs.json`.

Exit status 1: a page or link is broken, the site would load something from the network, or the
build took longer than its bound.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from importlib.metadata import version
from pathlib import Path

from tidelog_docs import site_source
from tidelog_docs.references import GENERATORS

MAX_SECONDS = 60
OUT = site_source.ROOT / "out"
SITE = OUT / "site"
# Addresses that a browser loads by itself; a link that a reader follows is none.
_LOADED = re.compile(
    r"""<(?:script|img|iframe|source)\b[^>]*\bsrc=["']?(?:https?:)?//[^"'\s>]+"""
    r"""|<link\b(?=[^>]*\brel=["']?(?:stylesheet|icon|preconnect|preload))[^>]*\bhref=["']?https?:[^>]+"""
    r"""|(?:@import\s+|url\()["']?(?:https?:)?//[^)"'\s]+""",
    re.IGNORECASE,
)


def main() -> int:
    began = time.monotonic()
    pages = site_source.write(OUT / "site-source")
    configuration = OUT / site_source.CONFIGURATION.name
    configuration.write_text(site_source.configuration())
    built = subprocess.run(
        [
            *(sys.executable, "-m", "zensical", "build", "--strict", "--clean"),
            *("--config-file", str(configuration)),
        ],
        check=False,
    )
    seconds = round(time.monotonic() - began, 1)
    loaded = sorted(set(loaded_from_network(SITE)))
    ok = built.returncode == 0 and not loaded and seconds <= MAX_SECONDS
    (OUT / "docs.json").write_text(json.dumps(result(ok, seconds, pages, loaded), indent=2) + "\n")
    for found in loaded:
        sys.stderr.write(f"the site would load this from the network: {found}\n")
    sys.stdout.write(f"{pages} pages in {seconds} s: {SITE / 'index.html'}\n")
    return 0 if ok else 1


def result(ok: bool, seconds: float, pages: int, loaded: list[str]) -> dict[str, object]:
    """Returns the keys of `out/docs.json`.

    - `ok`: no page or link is broken, nothing is loaded from the network, and the build took no
      longer than its bound; otherwise the exit status is 1.
    - `seconds`, `max_seconds`: the duration of the build, and its bound.
    - `pages`, `bytes`: the number of pages of the site, and the bytes of all its files.
    - `generated`: the names of the generated references.
    - `loaded_from_network`: what a page would load from the network.
    - `tools`: the versions of the tools.
    """
    return {
        "ok": ok,
        "seconds": seconds,
        "max_seconds": MAX_SECONDS,
        "pages": pages,
        "generated": sorted(GENERATORS),
        "bytes": sum(file.stat().st_size for file in SITE.rglob("*") if file.is_file()),
        "loaded_from_network": loaded,
        "tools": {name: version(name) for name in ("zensical", "mkdocstrings", "mmdr")},
    }


def loaded_from_network(site: Path) -> Iterator[str]:
    for file in site.rglob("*"):
        if file.suffix in (".html", ".css"):
            for match in _LOADED.finditer(file.read_text()):
                yield f"{file.relative_to(site)}: {match[0]}"


if __name__ == "__main__":
    sys.exit(main())
