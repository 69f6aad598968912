"""Search in files, or for files. ripgrep does it where there is one, our own walker elsewhere, alike."""

import asyncio
import os
import re
import shutil
import stat
from collections.abc import Callable, Mapping
from typing import cast

from msgspec import Struct

from alipes.kernel.errors import ToolError
from alipes.kernel.formatting import did_you_mean
from alipes.kernel.messages import Json
from alipes.kernel.ports import Act, ToolSpec
from alipes.runtime.processes.child import open_child
from alipes.runtime.processes.orphans import Keeper
from alipes.tools.common import Places
from alipes.tools.files.text_file import reason, shown, special
from alipes.tools.search.ripgrep import (
    Finding,
    Mode,
    Order,
    Page,
    Reader,
    misgiving,
    name_of,
    ripgrep,
    walker,
)
from alipes.tools.search.walker import Wanted

LIMIT, MOST = 50, 500
CONTEXT = 10
"""Lines around a match, at most."""
TIMEOUT = 60.0
_BREAK = re.compile(r"\n|(?<!\\)(?:\\\\)*\\n")
_MAGIC = re.compile(r"[*?\[{]")


class SearchFiles:
    """The `search_files` tool. Hidden files, what git ignores, binaries and secrets are left out."""

    spec = ToolSpec(
        name="search_files",
        description="Find lines in files by regex (target=content, default; (?i) ignores case), or files by a"
        " glob for their name or path (target=files). Skips hidden, git-ignored and binary files.",
        schema={
            "type": "object",
            "properties": {
                "pattern": {"type": "string"},
                "target": {"type": "string", "enum": ["content", "files"]},
                "path": {"type": "string", "description": "folder or file"},
                "file_glob": {"type": "string", "description": "e.g. *.py"},
                "limit": {"type": "integer", "description": "default 50"},
                "offset": {"type": "integer"},
                "output_mode": {"type": "string", "enum": ["content", "files_only", "count"]},
                "context": {"type": "integer", "description": "lines around"},
            },
            "required": ["pattern"],
        },
        effect="read",
    )

    def __init__(
        self,
        env: Mapping[str, str],
        places: Places,
        *,
        keeper: Keeper | None = None,
        mask: Callable[[str], str] = str,
        program: str | None = None,
        seconds: float = TIMEOUT,
    ) -> None:
        """`env` is the engine's environment; `program` is ripgrep, empty for none, None to look for it."""
        self._env, self._places, self._keeper, self._mask = env, places, keeper, mask
        self._program, self._seconds = program, seconds

    async def run(self, args: Mapping[str, Json], act: Act) -> str:
        search = await asyncio.to_thread(_asked, args, self._places, act.workdir)
        page, notes = await self._search(search)
        await act.progress(_summary(search, page))
        return "\n".join([self._mask(_told(search, page, act.workdir)), *notes])

    async def _search(self, search: "_Search") -> tuple[Page, list[str]]:
        """What was found, and what else is to be said."""
        if self._program is None:
            self._program = shutil.which("rg", path=self._env.get("PATH", os.defpath)) or ""
        engines = [ripgrep(self._program, search.order)] if self._program else []
        for argv in (*engines, walker(search.order)):
            page = search.page()
            notes = await self._engine(argv, search, page)
            if notes is not None:
                page.close()
                return page, notes
        raise ToolError("the search could not be run; use the terminal")

    async def _engine(self, argv: list[str], search: "_Search", page: Page) -> list[str] | None:
        """Let an engine fill the page; None when it is not able to. Leaving early ends it."""
        reader = Reader(search.order.mode)
        try:
            async with (
                asyncio.timeout(self._seconds) as limit,
                open_child(argv, cwd=search.order.folder, env=self._env, keeper=self._keeper) as child,
            ):
                while piece := await child.read():
                    if any(page.take(each) for each in reader.feed(piece) if self._may_show(each, search)):
                        return []
                code = await child.wait()
        except OSError:  # a TimeoutError is one
            if limit.expired():
                return [f"[stopped after {self._seconds:.0f} s: narrow path or file_glob]"]
            return None
        reader.finish()
        return _outcome(reader, code, search.order.pattern)

    def _may_show(self, finding: Finding, search: "_Search") -> bool:
        path = os.fsdecode(finding.path).removeprefix("./")
        if search.order.start != ".":
            return True
        if any(part.startswith(".") for part in path.split("/")) or not all(
            each(path) for each in search.sieves
        ):
            return False
        return search.order.mode == "files" or not self._is_secret(os.path.join(search.order.folder, path))

    def _is_secret(self, real: str) -> bool:
        try:
            return bool(self._places.secrecy(real)) or self._places.is_linked(os.stat(real))
        except OSError:
            return True


def _outcome(reader: Reader, code: int, pattern: str) -> list[str] | None:
    """What is to be said of an engine that came to its end; None when it could not do its work."""
    if why := misgiving(reader.said):
        raise ToolError(f"{pattern} is no valid regular expression: {why}")
    if code not in (0, 1, 2) or (code and reader.said.strip()):
        return None
    notes = ["[some files could not be read]"] if code == 2 else []
    if reader.left_out:
        notes.append(f"[{reader.left_out} matches in lines too long to show]")
    return notes


class _Search(Struct, frozen=True):
    """A call's arguments, once they make sense."""

    order: Order
    named: str
    """The place that is searched, by the name it was given."""
    sieves: tuple[Wanted, ...]
    offset: int
    limit: int

    def page(self) -> Page:
        order = self.order
        return Page(order.mode, offset=self.offset, limit=self.limit, context=order.context)


def _asked(args: Mapping[str, Json], places: Places, workdir: str) -> _Search:
    pattern, glob = str(args["pattern"]), str(args.get("file_glob") or "")
    named, mode = str(args.get("path") or "."), cast(Mode, args.get("output_mode") or "content")
    if args.get("target") == "files":
        mode = "files"
        if pattern.startswith(("/", "~/")):
            named, pattern = _parted(pattern)
    elif not pattern:
        raise ToolError("the pattern is empty; it would match every line")
    elif _BREAK.search(pattern):
        raise ToolError("a pattern cannot match a line break: files are searched line by line")
    context = min(max(0, _whole(args, "context", 0)), CONTEXT) if mode == "content" else 0
    place, folder, start = _place(places, named, workdir)
    globs = [each for each in ((pattern or "*") if mode == "files" else "", glob) if each]
    try:
        sieves = tuple(Wanted(each) for each in globs)
    except re.error as error:
        raise ToolError(f"{' or '.join(globs)} is no valid glob: {error}") from error
    order = Order(folder, mode, pattern, start, next(iter(globs), ""), context)
    offset, limit = max(0, _whole(args, "offset", 0)), _whole(args, "limit", LIMIT)
    return _Search(order, place, sieves, offset, min(max(1, limit), MOST))


def _place(places: Places, named: str, workdir: str) -> tuple[str, str, str]:
    """The place by its name, the folder the engine runs in, and where it starts from there."""
    place = places.locate(named, workdir)
    try:
        real = os.path.realpath(place)
        facts = os.stat(real)
    except FileNotFoundError:
        raise ToolError(f"there is no {place}.{_instead(str(place))}") from None
    except (OSError, ValueError) as error:
        raise ToolError(f"{place} cannot be searched: {reason(error)}") from error
    if stat.S_ISDIR(facts.st_mode):
        return str(place), real, "."
    if not stat.S_ISREG(facts.st_mode):
        raise ToolError(f"{place} is {special(facts.st_mode)}; only files and folders can be searched")
    if places.secrecy(real) or places.is_linked(facts):
        raise ToolError(f"{place} holds secrets and is not searched")
    return str(place), os.path.dirname(real), f"./{os.path.basename(real)}"


def _parted(pattern: str) -> tuple[str, str]:
    """A glob with a whole path: the folders before its first wildcard, and the rest."""
    magic = _MAGIC.search(pattern)
    cut = pattern.rfind("/", 0, magic.start() if magic else len(pattern))
    return pattern[:cut] or "/", pattern[cut + 1 :]


def _told(search: _Search, page: Page, workdir: str) -> str:
    if not page.rows:
        return _nothing(search)
    lines: list[str] = []
    before: Finding | None = None
    for row in page.rows:
        name = _shown(row.path, search, workdir)
        if search.order.mode != "content":
            lines.append(f"{name}: {row.number}" if search.order.mode == "count" else name)
            continue
        if before is None or before.path != row.path:
            lines += [name] if before is None else ["", name]
        elif search.order.context and row.number > before.number + 1:
            lines.append("--")
        lines.append(f"{row.number}{':' if row.match else '-'} {row.text}")
        before = row
    if page.more:
        lines += ["", f"[{_summary(search, page)}, and more: offset={page.next_offset}]"]
    return "\n".join(lines)


def _nothing(search: _Search) -> str:
    if search.offset:
        return f"nothing beyond the first {search.offset}"
    if search.order.mode == "files":
        hint = "" if _MAGIC.search(search.order.pattern) else f"; try *{search.order.pattern}*"
        return f"no such files{hint} (hidden and ignored ones are not looked at)"
    return "no matches (hidden, ignored and binary files are not searched)"


def _summary(search: _Search, page: Page) -> str:
    kinds = {"content": ("match", "matches"), "files": ("file", "files")}
    one, many = kinds.get(search.order.mode, ("file with matches", "files with matches"))
    files = len({row.path for row in page.rows})
    where = (
        f" in {files:,} file{'s' if files > 1 else ''}" if search.order.mode == "content" and files else ""
    )
    return f"{page.count:,} {one if page.count == 1 else many}{where}"


def _shown(path: bytes, search: _Search, workdir: str) -> str:
    if search.order.start != ".":
        return name_of(os.fsencode(shown(search.named, workdir)))
    return name_of(os.fsencode(shown(os.path.join(search.named, os.fsdecode(path)), workdir)))


def _instead(place: str) -> str:
    try:
        return did_you_mean(os.path.basename(place), os.listdir(os.path.dirname(place)))
    except OSError:
        return ""


def _whole(args: Mapping[str, Json], name: str, default: int) -> int:
    given = args.get(name)
    return given if isinstance(given, int) else default
