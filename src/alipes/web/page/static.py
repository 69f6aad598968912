"""The files of the page: read, hashed and compressed once, and served with headers that let nothing else run."""

import asyncio
import base64
import gzip
import hashlib
import re
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path

import msgspec
from msgspec import Struct
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from alipes.web.endpoint import HttpProblem, problem_response
from alipes.web.page.bundle import bundle_modules, make_stub

FOLDER = Path(__file__).parent / "static"
_TYPES: Mapping[str, str] = {
    ".js": "text/javascript; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".html": "text/html; charset=utf-8",
    ".svg": "image/svg+xml",
    ".png": "image/png",
    ".webmanifest": "application/manifest+json",
}
"""Content types of the files that are served, by suffix; other files, such as types for the compiler, are not."""
_COMPRESSED = frozenset({".js", ".css", ".html", ".svg", ".webmanifest"})
_HASH_CHARS = 16
_NOTES = re.compile(rb"^[ \t]*//.*\n|/\*\*(?:[^*]|\*(?!/))*\*/[ \t]*\n?|^[ \t]*\n", re.MULTILINE)
"""Types, comments on lines of their own, and blank lines in our own scripts: readers of the source need them, browsers
do not."""
_FIRST_STYLES = ("app.css", "ui.css", "chat.css")
FIRST_STYLE = "first.css"
"""These in one file, for the first screen: smaller than three."""
FIRST_SCRIPT = "first.js"
"""The modules that index.html names, in one."""
_PRELOAD = re.compile(rb'<link rel="modulepreload" href="\{\{static\}\}/((?!vendor/)[^"]+)">\n')
_ENTRY = "app.js"
_OTHERS = "vendor/"
_OWN = "script-src 'self'; worker-src 'self'; connect-src 'self'; base-uri 'none'; form-action 'none'"
_SHOWS = "frame-src 'self'; style-src 'self'; img-src 'self' blob:; font-src 'self'; manifest-src 'self'"
_TRUSTED_TYPES = "require-trusted-types-for 'script'; trusted-types 'none'"
PAGE_CSP = f"default-src 'none'; {_OWN}; {_SHOWS}; frame-ancestors 'none'; {_TRUSTED_TYPES}"
INSTALL_CSP = f"default-src 'none'; {_OWN}; frame-ancestors 'none'"
"""Without Trusted Types: under `trusted-types 'none'` no script may register a service worker. It shows no data."""
_ALONE = "default-src 'none'; style-src 'unsafe-inline'; img-src data:; font-src data:; base-uri 'none'"
DIAGRAM_CSP = f"{_ALONE}; form-action 'none'; frame-ancestors 'self'; sandbox allow-scripts; script-src {{scripts}}"
"""The frame of a diagram has an origin of its own and no network, and runs only the two scripts that are in it."""
WORKER_CSP = "default-src 'none'; script-src 'self'; connect-src 'self'"
_REVALIDATE = {"cache-control": "no-cache"}
_FOREVER = {"cache-control": "public, max-age=31536000, immutable"}
_DOCUMENT = {"cross-origin-opener-policy": "same-origin", "referrer-policy": "no-referrer"}


_INSIDE = ("vendor/mermaid.js", "diagram.js")
"""Scripts of the frame of a diagram: in the document itself, because the frame may load nothing."""


class _File(Struct, frozen=True):
    content: bytes
    compressed: bytes | None
    type: str


class _Files(Struct, frozen=True):
    """All files; `hash` is in the address of those in the folder."""

    hash: str
    static: Mapping[str, _File]
    documents: Mapping[str, _File]
    scripts: str
    """Sources for the policy of the frame of a diagram: the hashes of its scripts."""


_DOCUMENTS: Mapping[str, tuple[str, Mapping[str, str]]] = {
    "/": ("index.html", {**_DOCUMENT, "content-security-policy": PAGE_CSP}),
    "/install": ("install.html", {**_DOCUMENT, "content-security-policy": INSTALL_CSP}),
    "/sw.js": ("sw.js", {"content-security-policy": WORKER_CSP}),
    "/manifest.webmanifest": ("manifest.webmanifest", {}),
    "/diagram": ("diagram.html", {"content-security-policy": DIAGRAM_CSP}),
}
"""Files at an address of their own, with their headers. In them `{{static}}` becomes the address of the folder,
relative to the page, and `{{files}}` a JSON list of the files in it."""


class PageFiles:
    """Serves the files in `folder`. They are read with the first request; a change needs a restart."""

    def __init__(self, folder: Path = FOLDER) -> None:
        self._folder = folder
        self._files: _Files | None = None
        self._lock = asyncio.Lock()

    def routes(self) -> list[Route]:
        documents = [Route(path, self._document_handler(path)) for path in _DOCUMENTS]
        return [*documents, Route("/static/{hash}/{name:path}", self.send_static)]

    async def send_static(self, request: Request) -> Response:
        """A file of the folder. Its address changes with its content, so it may be kept forever."""
        files = await self._load()
        file = files.static.get(request.path_params["name"])
        if file is None or request.path_params["hash"] != files.hash:
            why = "the page has no such file, or was updated: reload the page"
            return problem_response(HttpProblem(404, why, code="not_found"))
        return _send(request, file, _FOREVER)

    def _document_handler(self, path: str) -> Callable[[Request], Awaitable[Response]]:
        name, given = _DOCUMENTS[path]

        async def send(request: Request) -> Response:
            files = await self._load()
            file = files.documents.get(name)
            if file is None:
                return problem_response(HttpProblem(404, "not found", code="not_found"))
            etag = f'"{files.hash}"'
            headers = {key: value.replace("{scripts}", files.scripts) for key, value in given.items()}
            if etag in request.headers.get("if-none-match", ""):
                return Response(status_code=304, headers={"etag": etag, **_REVALIDATE, **headers})
            return _send(request, file, {"etag": etag, **_REVALIDATE, **headers})

        return send

    async def _load(self) -> _Files:
        async with self._lock:
            if self._files is None:
                self._files = await asyncio.to_thread(_read_files, self._folder)
        return self._files


def _read_files(folder: Path) -> _Files:
    paths = sorted(path for path in folder.rglob("*") if path.suffix in _TYPES and path.is_file())
    contents = {path.relative_to(folder).as_posix(): path.read_bytes() for path in paths}
    if styles := [contents[name] for name in _FIRST_STYLES if name in contents]:
        contents[FIRST_STYLE] = b"".join(styles)
    digest = hashlib.sha256()
    for name, content in contents.items():
        digest.update(f"{name}\n{len(content)}\n".encode() + content)
    hash = digest.hexdigest()[:_HASH_CHARS]
    inside = {name: strip_notes(name, contents.pop(name, b"")).replace(b"</script", b"<\\/script") for name in _INSIDE}
    scripts = " ".join(
        f"'sha256-{base64.b64encode(hashlib.sha256(each).digest()).decode()}'" for each in inside.values()
    )
    documents = {name for name, _ in _DOCUMENTS.values()}
    sources = {name: strip_notes(name, each) for name, each in contents.items() if name not in documents}
    contents["index.html"] = _bundle(contents.get("index.html", b""), sources)
    static = {name: _make_file(name, each) for name, each in sources.items()}
    marks = {f"{{{{{Path(name).stem}}}}}".encode(): each for name, each in inside.items()}
    marks |= {b"{{static}}": f"static/{hash}".encode(), b"{{files}}": msgspec.json.encode(list(static))}
    filled = {name: _make_file(name, _fill(contents[name], marks)) for name in documents & contents.keys()}
    return _Files(hash, static, filled, scripts)


def strip_notes(name: str, content: bytes) -> bytes:
    """A script of ours without types and comments; a third less to load. Strings of ours never contain `/**`."""
    return _NOTES.sub(b"", content) if name.endswith(".js") and not name.startswith(_OTHERS) else content


def _bundle(page: bytes, sources: dict[str, bytes]) -> bytes:
    """Put the modules that the page names into one of `sources`; returns the page, which names that instead."""
    names = [_ENTRY, *(found[1].decode() for found in _PRELOAD.finditer(page))]
    if len(names) == 1:
        return page
    modules = {name: sources[name].decode() for name in names}
    sources[FIRST_SCRIPT] = bundle_modules(modules).encode()
    sources |= {name: make_stub(name, source, FIRST_SCRIPT).encode() for name, source in modules.items()}
    return _PRELOAD.sub(b"", page).replace(f"/{_ENTRY}".encode(), f"/{FIRST_SCRIPT}".encode())


def _hash_source(script: bytes) -> str:
    return base64.b64encode(hashlib.sha256(script).digest()).decode()


def _fill(content: bytes, marks: Mapping[bytes, bytes]) -> bytes:
    for mark, value in marks.items():
        content = content.replace(mark, value)
    return content


def _make_file(name: str, content: bytes) -> _File:
    suffix = Path(name).suffix
    # No time in the header, so that the same files give the same bytes.
    compressed = gzip.compress(content, 9, mtime=0) if suffix in _COMPRESSED else None
    return _File(content, compressed, _TYPES[suffix])


def _send(request: Request, file: _File, headers: Mapping[str, str]) -> Response:
    vary = {"vary": "accept-encoding"} if file.compressed is not None else {}
    if file.compressed is not None and _accepts_gzip(request.headers.get("accept-encoding", "")):
        return Response(
            file.compressed, headers={**headers, **vary, "content-encoding": "gzip", "content-type": file.type}
        )
    return Response(file.content, headers={**headers, **vary, "content-type": file.type})


def _accepts_gzip(header: str) -> bool:
    for each in header.split(","):
        name, _, weight = each.strip().lower().partition(";")
        if name.strip() in ("gzip", "*"):
            return weight.replace(" ", "") not in ("q=0", "q=0.0", "q=0.00", "q=0.000")
    return False
