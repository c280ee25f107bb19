"""The files of the web console, served from memory.

They are read once at the start, so that no request path reaches another file. File names do not
depend on the content, since there is no build step. Browsers cache the files and revalidate them
by their entity tags.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from fastapi import APIRouter, FastAPI, Request, Response
from starlette.exceptions import HTTPException
from starlette.responses import RedirectResponse

DIRECTORY = Path(__file__).with_name("console")
INDEX = "index.html"
PREFIX = "/console/"

# The tables of operating systems differ. Files of other types are licences and notes.
MEDIA_TYPES: Mapping[str, str] = {
    ".css": "text/css; charset=utf-8",
    ".html": "text/html; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
}
_PLAIN = "text/plain; charset=utf-8"

# Pages load only files of the gateway, and run no inline scripts or styles.
CONTENT_SECURITY_POLICY = "; ".join(
    (
        "default-src 'none'",
        "script-src 'self'",
        "style-src 'self'",
        "img-src 'self' data:",
        "connect-src 'self'",
        "base-uri 'none'",
        "form-action 'none'",
        "frame-ancestors 'none'",
    )
)
# RapiDoc, which shows the REST API, uses inline styles.
API_PAGE = "api.html"
API_PAGE_SECURITY_POLICY = CONTENT_SECURITY_POLICY.replace(
    "style-src 'self'", "style-src 'self' 'unsafe-inline'"
)
_HEADERS: Mapping[str, str] = {
    "Cache-Control": "no-cache",
    "Content-Security-Policy": CONTENT_SECURITY_POLICY,
    "Cross-Origin-Opener-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
}


@dataclass(frozen=True, slots=True)
class ConsoleFile:
    """A file of the console.

    - `tag`: strong entity tag, in quotes
    """

    content: bytes
    media_type: str
    tag: str


def read_files(directory: Path = DIRECTORY) -> dict[str, ConsoleFile]:
    """Returns the files by their path within `directory`.

    Symbolic links are left out, since they may point elsewhere. Raises `FileNotFoundError` if
    there is no console.
    """
    found = {
        path.relative_to(directory).as_posix(): _read(path)
        for path in sorted(directory.rglob("*"))
        if path.is_file() and not path.is_symlink()
    }
    if INDEX not in found:
        raise FileNotFoundError(
            f"{directory} has no {INDEX}, which the web console needs; reinstall tidelog, or set "
            "console to false"
        )
    return found


def _read(path: Path) -> ConsoleFile:
    content = path.read_bytes()
    tag = f'"{hashlib.sha256(content).hexdigest()[:32]}"'
    return ConsoleFile(content, MEDIA_TYPES.get(path.suffix, _PLAIN), tag)


def add_console(app: FastAPI, directory: Path = DIRECTORY) -> None:
    """Serves the console at /console/, with redirects from / and from /docs to the API page.

    The OpenAPI document does not contain these paths.
    """
    app.include_router(_router(read_files(directory)))


def _router(files: Mapping[str, ConsoleFile]) -> APIRouter:
    router = APIRouter(include_in_schema=False)

    @router.api_route("/", methods=["GET", "HEAD"])
    @router.api_route(PREFIX.rstrip("/"), methods=["GET", "HEAD"])
    async def redirect_to_console() -> Response:
        # The redirect is relative, so that it works behind a proxy that adds a prefix.
        return RedirectResponse(PREFIX.lstrip("/"))

    @router.api_route("/docs", methods=["GET", "HEAD"])
    async def redirect_to_api_page() -> Response:
        return RedirectResponse(PREFIX.lstrip("/") + API_PAGE)

    @router.api_route(PREFIX + "{path:path}", methods=["GET", "HEAD"])
    async def serve(path: str, request: Request) -> Response:
        file = files.get(path or INDEX)
        if file is None:
            raise HTTPException(404, f"the console has no file {path!r}")
        headers = {**_HEADERS, "ETag": file.tag}
        if path == API_PAGE:
            headers["Content-Security-Policy"] = API_PAGE_SECURITY_POLICY
        if _is_current(request.headers.get("if-none-match", ""), file.tag):
            return Response(status_code=304, headers=headers)
        return Response(file.content, media_type=file.media_type, headers=headers)

    return router


def _is_current(if_none_match: str, tag: str) -> bool:
    """Whether the client's copy is current, by weak comparison (RFC 9110)."""
    tags = [one.strip().removeprefix("W/") for one in if_none_match.split(",")]
    return tag in tags or tags == ["*"]
