"""Files of the page over a real server: addresses, caching, compression, and headers that let nothing else run."""

import gzip
import os
import re
import shutil
import subprocess
import tomllib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import httpx2
import pytest

from alipes.web.auth import Authenticator
from alipes.web.page.static import FOLDER, PAGE_CSP, PageFiles, strip_notes
from alipes.web.server import HostPolicy, bind_socket, open_server, server_url
from tests.unit.web.test_server import Room, serving
from tests.unit.web.test_web import Parts
from tests.world.environment import SERVICES, require, skip

ROOT = Path(__file__).parents[4]


@asynccontextmanager
async def open_page(folder: Path = FOLDER) -> AsyncIterator[httpx2.AsyncClient]:
    with bind_socket("127.0.0.1", 0) as door:
        app = Parts().service().app(HostPolicy(), Authenticator(""), None, PageFiles(folder).routes())
        async with open_server(app, door), httpx2.AsyncClient(base_url=server_url(door), trust_env=False) as client:
            yield client


def folder_in(html: str) -> str:
    found = re.search(r"static/[0-9a-f]{16}", html)
    assert found
    return found[0]


@pytest.fixture
def small(tmp_path):
    (tmp_path / "vendor").mkdir()
    (tmp_path / "index.html").write_text('<script src="{{static}}/app.js"></script>')
    (tmp_path / "sw.js").write_text("const files = {{files}};")
    (tmp_path / "app.js").write_text("let a = 1;\n" * 100)
    (tmp_path / "vendor" / "types.d.ts").write_text("export const a: 1;")
    (tmp_path / "picture.png").write_bytes(b"\x89PNG")
    return tmp_path


async def test_the_page_names_its_files_relative_to_itself_and_they_are_there():
    async with open_page() as client:
        page = await client.get("/")
        assert page.headers["content-type"] == "text/html; charset=utf-8" and "{{" not in page.text
        names = re.findall(r'(?:src|href)="([^"]+)"', page.text)
        assert names
        for name in names:
            assert not name.startswith(("/", "http", "//")), name
            if not name.startswith("data:"):
                assert (await client.get(f"/{name}")).status_code == 200, name


async def test_every_file_has_a_content_type_and_is_the_same_compressed_and_not():
    async with open_page() as client:
        folder = folder_in((await client.get("/")).text)
        preloaded = (FOLDER / "index.html").read_text()
        for path in FOLDER.rglob("*.js"):
            if path.name in ("sw.js", "diagram.js", "mermaid.js"):
                continue  # not in the folder
            name = f"/{folder}/{path.relative_to(FOLDER).as_posix()}"
            plain = await client.get(name, headers={"accept-encoding": "identity"})
            source = strip_notes(path.relative_to(FOLDER).as_posix(), path.read_bytes())
            if f'/{path.relative_to(FOLDER).as_posix()}"' not in preloaded or "vendor" in path.parts:
                assert plain.content == source
            else:
                assert b"first.js" in plain.content and len(plain.content) < len(source)
            assert "content-encoding" not in plain.headers
            async with client.stream("GET", name, headers={"accept-encoding": "br, gzip"}) as small:
                raw = b"".join([part async for part in small.aiter_raw()])
            assert small.headers["content-encoding"] == "gzip" and gzip.decompress(raw) == plain.content
            assert small.headers["content-type"] == "text/javascript; charset=utf-8"
            assert small.headers["vary"] == "accept-encoding"


async def test_a_refused_compression_is_not_used(small):
    async with open_page(small) as client:
        folder = folder_in((await client.get("/")).text)
        answer = await client.get(f"/{folder}/app.js", headers={"accept-encoding": "gzip;q=0"})
        assert "content-encoding" not in answer.headers


async def test_files_of_the_folder_are_kept_forever_and_the_page_is_asked_for_again(small):
    async with open_page(small) as client:
        page = await client.get("/")
        assert page.headers["cache-control"] == "no-cache"
        again = await client.get("/", headers={"if-none-match": page.headers["etag"]})
        assert (again.status_code, again.content) == (304, b"")
        assert again.headers["content-security-policy"] == PAGE_CSP
        file = await client.get(f"/{folder_in(page.text)}/app.js")
        assert file.headers["cache-control"] == "public, max-age=31536000, immutable"


async def test_scripts_have_only_the_headers_that_they_need(small):
    async with open_page(small) as client:
        folder = folder_in((await client.get("/")).text)
        script = await client.get(f"/{folder}/app.js")
        needed = {
            "content-type",
            "content-length",
            "content-encoding",
            "cache-control",
            "vary",
            "x-content-type-options",
        }
        assert set(script.headers) == needed and script.headers["x-content-type-options"] == "nosniff"
        picture = await client.get(f"/{folder}/picture.png")
        missing = await client.get(f"/{folder}/none.js")
        for answer in (picture, missing):
            assert "frame-ancestors 'none'" in answer.headers["content-security-policy"]


async def test_a_change_of_any_file_changes_the_address_of_all(small):
    async with open_page(small) as client:
        before = await client.get("/")
    (small / "sw.js").write_text("// changed")
    async with open_page(small) as client:
        after = await client.get("/")
        assert folder_in(after.text) != folder_in(before.text) and after.headers["etag"] != before.headers["etag"]
        old = await client.get(f"/{folder_in(before.text)}/app.js")
        assert old.status_code == 404 and "reload the page" in old.json()["detail"]


async def test_the_worker_gets_the_list_of_files(small):
    async with open_page(small) as client:
        worker = await client.get("/sw.js")
        assert worker.text == 'const files = ["app.js","picture.png"];'
        assert (
            worker.headers["content-type"].startswith("text/javascript")
            and "no-cache" in worker.headers["cache-control"]
        )


@pytest.mark.parametrize(
    "name", ["vendor/types.d.ts", "none.js", "..%2findex.html", "%2e%2e/%2e%2e/static.py", "index.html", "vendor", ""]
)
async def test_no_other_file_is_served(small, name):
    async with open_page(small) as client:
        folder = folder_in((await client.get("/")).text)
        assert (await client.get(f"/{folder}/{name}")).status_code == 404


async def test_the_page_has_the_strictest_headers():
    async with open_page() as client:
        headers = (await client.get("/")).headers
        csp = dict(part.strip().split(" ", 1) for part in headers["content-security-policy"].split(";"))
        assert csp == {
            "default-src": "'none'",
            **{name: "'self'" for name in ("script-src", "style-src", "connect-src", "manifest-src", "worker-src")},
            "font-src": "'self'",
            "img-src": "'self' blob:",
            "frame-src": "'self'",
            **{name: "'none'" for name in ("base-uri", "form-action", "frame-ancestors", "trusted-types")},
            "require-trusted-types-for": "'script'",
        }
        assert headers["cross-origin-opener-policy"] == "same-origin" and headers["referrer-policy"] == "no-referrer"
        assert headers["x-content-type-options"] == "nosniff"
        install = (await client.get("/install")).headers["content-security-policy"]
        assert "default-src 'none'" in install and "frame-ancestors 'none'" in install and "style" not in install


@pytest.mark.parametrize("path", ["/v1/things", "/v1/none", "/health", "/metrics", "/openapi.json"])
async def test_every_other_answer_cannot_be_shown_as_a_page_or_in_a_frame(path):
    async with serving(Room()) as client:
        headers = (await client.get(path)).headers
        assert headers["content-security-policy"] == "default-src 'none'; frame-ancestors 'none'"
        assert headers["cross-origin-resource-policy"] == "same-origin" and headers["referrer-policy"] == "no-referrer"


async def test_a_link_on_another_site_opens_the_page_but_nothing_else_of_that_site_does():
    link = {"sec-fetch-site": "cross-site", "sec-fetch-mode": "navigate", "sec-fetch-dest": "document"}
    async with open_page() as client:
        assert (await client.get("/", headers=link)).status_code == 200
        assert (await client.get("/health", headers=link)).status_code == 403
        for change in ({"sec-fetch-dest": "iframe"}, {"sec-fetch-mode": "cors", "sec-fetch-dest": "empty"}):
            assert (await client.get("/", headers={**link, **change})).status_code == 403
        assert (await client.get("/", headers={**link, "origin": "https://other.example"})).status_code == 403


def test_the_wheel_contains_every_file_of_the_page():
    built = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["hatch"]["build"]["targets"]["wheel"]
    expected = {"packages": ["src/alipes"], "force-include": {"CHANGELOG.md": "alipes/CHANGELOG.md"}}
    assert built == expected, "a wheel contains what is in src/alipes, except ignored files, and the change log"
    files = [str(path) for path in FOLDER.rglob("*") if path.is_file()]
    environ = {**os.environ, "GIT_CONFIG_GLOBAL": os.devnull, "GIT_CONFIG_SYSTEM": os.devnull}
    command = [require("git"), "check-ignore", "--no-index", *files]
    ignored = subprocess.run(command, cwd=ROOT, env=environ, capture_output=True, text=True)
    assert ignored.returncode == 1, ignored.stdout + ignored.stderr


async def test_a_first_visit_to_the_chat_loads_at_most_seventy_two_kilobytes():
    async with open_page() as client:
        page = (await client.get("/")).text
        sizes = dict[str, int]()
        for name in ("", *re.findall(r'(?:href|src)="([^"]+\.(?:js|css))"', page)):
            async with client.stream("GET", f"/{name}", headers={"accept-encoding": "gzip"}) as answer:
                sizes[name] = len(b"".join([part async for part in answer.aiter_raw()]))
    assert sum(sizes.values()) <= 72 * 1024, sizes


def test_the_page_preloads_exactly_the_modules_that_the_chat_imports():
    page = (FOLDER / "index.html").read_text()
    named = set(re.findall(r'\{\{static\}\}/([^"]+\.js)', page))
    found, left = set[str](), ["app.js", "chat/chat.js"]
    while left:
        name = left.pop()
        if name in found:
            continue
        found.add(name)
        for imported in re.findall(r'^import [^;]*?"(\.[^"]+)";', (FOLDER / name).read_text(), re.MULTILINE):
            left.append(os.path.normpath(os.path.join(os.path.dirname(name), imported)))
    assert named == found


def test_scripts_without_notes_are_the_same_programs(tmp_path):
    esbuild = shutil.which("esbuild", path=str(SERVICES / "node_modules" / ".bin"))
    if esbuild is None:
        skip("esbuild is not installed (make services)")
    for path in (each for each in FOLDER.rglob("*.js") if "vendor" not in each.parts):
        source = path.read_bytes()
        stripped = strip_notes(path.relative_to(FOLDER).as_posix(), source)
        assert len(stripped) < len(source)
        programs = [
            subprocess.run([esbuild, "--minify", "--loader=js"], input=each, capture_output=True, check=True).stdout
            for each in (source, stripped)
        ]
        assert programs[0] == programs[1], path.name


def test_notes_in_modules_of_others_stay():
    assert strip_notes("vendor/x.js", b"/** licence */\nlet a;") == b"/** licence */\nlet a;"
    assert strip_notes("app.css", b"/* note */\na {}") == b"/* note */\na {}"
    assert strip_notes("app.js", b"// note\n/** @type {x} */\nlet a; // https://x\n") == b"let a; // https://x\n"
