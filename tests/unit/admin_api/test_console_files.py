"""The web console's files as the gateway serves them."""

from __future__ import annotations

import re
from pathlib import Path

import httpx
import pytest
from fastapi import FastAPI

from tidelog_admin_api.console_files import DIRECTORY, add_console, read_files
from unit.admin_api.fakes import FakeCluster, client_of

FILES = read_files()
_IMPORT = re.compile(r'(?:from|import)\s*"(\.[^"]+)"')


@pytest.fixture
def small(tmp_path: Path) -> Path:
    directory = tmp_path / "console"
    (directory / "app").mkdir(parents=True)
    (directory / "index.html").write_text("<p>index</p>")
    (directory / "app/main.js").write_text("export {};")
    (tmp_path / "secret").write_text("secret")
    return directory


def browser(directory: Path) -> httpx.AsyncClient:
    app = FastAPI()
    add_console(app, directory)
    transport = httpx.ASGITransport(app)
    return httpx.AsyncClient(transport=transport, base_url="http://gateway")


async def test_the_root_redirects_to_the_console(gateway: httpx.AsyncClient) -> None:
    answer = await gateway.get("/", follow_redirects=True)
    assert answer.status_code == 200
    assert str(answer.url) == "http://gateway/console/"
    assert answer.headers["content-type"] == "text/html; charset=utf-8"


async def test_a_page_may_run_only_scripts_that_the_gateway_serves(
    gateway: httpx.AsyncClient,
) -> None:
    policy = (await gateway.get("/console/")).headers["content-security-policy"]
    assert "default-src 'none'" in policy
    assert "script-src 'self';" in policy
    assert "unsafe" not in policy


async def test_the_page_of_the_api_may_have_styles_and_no_inline_scripts(
    gateway: httpx.AsyncClient,
) -> None:
    answer = await gateway.get("/docs", follow_redirects=True)
    assert str(answer.url) == "http://gateway/console/api.html"
    assert "<rapi-doc" in answer.text
    policy = answer.headers["content-security-policy"]
    assert "style-src 'self' 'unsafe-inline';" in policy
    assert "script-src 'self';" in policy
    assert policy.count("unsafe") == 1


async def test_without_a_console_the_root_is_not_found() -> None:
    async with client_of(FakeCluster().app(console=False)) as client:
        assert (await client.get("/console/")).status_code == 404


async def test_the_console_is_not_in_the_openapi_document(gateway: httpx.AsyncClient) -> None:
    document = (await gateway.get("/openapi.json")).json()
    assert not [path for path in document["paths"] if "console" in path or path == "/"]


async def test_a_cached_file_is_not_sent_again(small: Path) -> None:
    async with browser(small) as client:
        first = await client.get("/console/app/main.js")
        assert first.headers["cache-control"] == "no-cache"
        held = {"If-None-Match": f'"other", W/{first.headers["etag"]}'}
        again = await client.get("/console/app/main.js", headers=held)
    assert (again.status_code, again.content) == (304, b"")


async def test_a_file_that_has_changed_is_sent(small: Path) -> None:
    async with browser(small) as client:
        answer = await client.get("/console/app/main.js", headers={"If-None-Match": '"other"'})
    assert answer.status_code == 200


async def test_scripts_have_the_script_media_type_on_every_machine(small: Path) -> None:
    async with browser(small) as client:
        answer = await client.get("/console/app/main.js")
    assert answer.headers["content-type"] == "text/javascript; charset=utf-8"
    assert answer.headers["x-content-type-options"] == "nosniff"


@pytest.mark.parametrize(
    "path", ["../secret", "..%2fsecret", "app/../../secret", "%2e%2e/secret", "app", "app/", "/"]
)
async def test_no_path_leads_out_of_the_directory(small: Path, path: str) -> None:
    async with browser(small) as client:
        answer = await client.get(f"/console/{path}")
    assert answer.status_code == 404
    assert "secret" not in answer.text or "no file" in answer.text


def test_a_link_is_not_followed(small: Path) -> None:
    (small / "link.js").symlink_to(small.parent / "secret")
    assert "link.js" not in read_files(small)


def test_a_console_without_its_index_page_is_rejected_at_startup(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="index"):
        read_files(tmp_path)


@pytest.mark.parametrize("name", [name for name in FILES if name.endswith(".js")])
def test_imported_modules_exist(name: str) -> None:
    for imported in _IMPORT.findall(FILES[name].content.decode()):
        target = (DIRECTORY / name).parent / imported
        assert target.resolve().relative_to(DIRECTORY).as_posix() in FILES, imported


@pytest.mark.parametrize("name", ["index.html", "api.html"])
def test_a_page_names_only_existing_files_and_has_no_inline_code(name: str) -> None:
    page = FILES[name].content.decode()
    named = re.findall(r'(?:src|href)="([^"]+)"', page)
    assert named
    assert set(named) <= set(FILES)
    assert not re.search(r"<script(?![^>]*\bsrc=)|<style|\sstyle=|\son\w+=", page)


@pytest.mark.parametrize("name", ["preact", "htm", "uPlot", "rapidoc"])
def test_third_party_files_have_their_licence(name: str) -> None:
    assert b"opyright" in FILES[f"vendor/LICENSE.{name}"].content


def test_nothing_is_fetched_from_elsewhere() -> None:
    for name, file in FILES.items():
        if name.startswith(("app/", "styles/", "index", "api")):
            text = file.content.decode().replace("http://www.w3.org/2000/svg", "")
            assert "http://" not in text, name
            assert "https://" not in text, name
