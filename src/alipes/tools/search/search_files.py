"""`search_files`: searches file contents or names, with ripgrep or else with our walker."""

import asyncio
import os
import re
import shutil
import stat
from collections import Counter
from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import cast

from msgspec import Struct, structs

from alipes.kernel.errors import ToolError
from alipes.kernel.lazy import lazy_pattern
from alipes.kernel.messages import Json
from alipes.kernel.ports import ToolContext
from alipes.runtime.beneath import NAMED, open_beneath
from alipes.runtime.processes.child import open_child
from alipes.runtime.processes.process_tree import OrphanGuard
from alipes.tools.boundary import FileBoundary, OpenedPath, as_path, suggest_name
from alipes.tools.common import describe_file_type, int_argument
from alipes.tools.file_specs import SEARCH_FILES
from alipes.tools.files.text_file import display_path
from alipes.tools.search.ripgrep import (
    ResultPage,
    ResultRow,
    SearchMode,
    SearchOutputParser,
    SearchRequest,
    has_lines,
    pattern_error,
    quote_path,
    ripgrep_command,
    walker_command,
)
from alipes.tools.search.walker import GlobFilter

DEFAULT_LIMIT, MAX_LIMIT = 50, 500
MAX_CONTEXT = 10
TIMEOUT_S = 60.0
_READ = os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY
_BREAK = lazy_pattern(r"\n|(?<!\\)(?:\\\\)*\\n")
_MAGIC = lazy_pattern(r"[*?\[{]")


class SearchFiles:
    """The `search_files` tool. Skips hidden, ignored and binary files, and files with secrets."""

    spec = SEARCH_FILES

    def __init__(
        self,
        env: Mapping[str, str],
        boundary: FileBoundary,
        *,
        keeper: OrphanGuard | None = None,
        mask: Callable[[str], str] = str,
        program: str | None = None,
        seconds: float = TIMEOUT_S,
    ) -> None:
        """`program` is the path of ripgrep: empty to use the walker, None to look for it in PATH of `env`."""
        self._env, self._boundary, self._keeper, self._mask = env, boundary, keeper, mask
        self._program, self._seconds = program, seconds

    async def run(self, args: Mapping[str, Json], act: ToolContext) -> str:
        query = _parse_arguments(args)
        with await asyncio.to_thread(self._boundary.opened, query.named, act) as opened:
            search = await asyncio.to_thread(self._locate, query, opened)
            page, notes = await self._search(search)
            await asyncio.to_thread(self._check_rows, search, page)
        await act.progress(_format_summary(search, page))
        return "\n".join([self._mask(_format_page(search, page, act.workdir)), *notes])

    def _locate(self, query: "_Query", opened: OpenedPath) -> "_Search":
        """Raises `ToolError` if the path cannot be searched."""
        if opened.facts is None or opened.handle is None:
            raise ToolError(f"{opened.path} does not exist.{suggest_name(opened)}")
        mode = opened.facts.st_mode
        order = SearchRequest(opened.real, query.mode, query.pattern, ".", query.glob, query.context)
        if not stat.S_ISDIR(mode):
            if not stat.S_ISREG(mode):
                what = describe_file_type(mode)
                raise ToolError(f"{opened.path} is {what}; only files and directories can be searched")
            if self._boundary.is_withheld(opened):
                raise ToolError(f"{opened.path} holds secrets and is not searched")
            order = structs.replace(order, start=as_path(opened.handle))
        return _Search(order, opened, query)

    async def _search(self, search: "_Search") -> tuple[ResultPage, list[str]]:
        """The page of results, and notes for the model."""
        if self._program is None:
            self._program = shutil.which("rg", path=self._env.get("PATH", os.defpath)) or ""
        engines = [ripgrep_command(self._program, search.request)] if self._program else []
        for argv in (*engines, walker_command(search.request)):
            order, query = search.request, search.query
            page = ResultPage(order.mode, offset=query.offset, limit=query.limit, context=order.context)
            notes = await self._run_engine(argv, search, page)
            if notes is not None:
                page.trim()
                return page, notes
        raise ToolError("the search failed to run; use the terminal tool")

    async def _run_engine(self, argv: list[str], search: "_Search", page: ResultPage) -> list[str] | None:
        """Fill the page from an engine; returns notes, or None if the engine failed."""
        reader = SearchOutputParser(search.request.rows)
        may_show = lru_cache(maxsize=1)(lambda path: self._may_show(os.fsdecode(path), search))
        cwd, fds = (as_path(search.handle), ()) if search.is_folder else ("/", (search.handle,))
        try:
            async with (
                asyncio.timeout(self._seconds) as limit,
                open_child(argv, cwd=cwd, env=self._env, keeper=self._keeper, fds=fds) as child,
            ):
                while piece := await child.read():
                    if any(page.add(each) for each in reader.feed(piece) if may_show(each.path)):
                        return []
                code = await child.wait()
        except OSError:  # a TimeoutError is one
            if limit.expired():
                return [f"[stopped after {self._seconds:.0f} s; narrow path or file_glob]"]
            return None
        reader.finish()
        return _check_exit(reader, code, search.request.pattern)

    def _may_show(self, path: str, search: "_Search") -> bool:
        if not search.is_folder:
            return True
        path = path.removeprefix("./")
        if any(part.startswith(".") for part in path.split("/")) or not all(
            each(path) for each in search.query.filters
        ):
            return False
        return search.request.mode == "files" or not self._boundary.places.secrecy(f"{search.opened.real}/{path}")

    def _check_rows(self, search: "_Search", page: ResultPage) -> None:
        """Leave out what the files in the opened folder do not contain: an engine opens them by name, and a name may
        have led elsewhere for a moment."""
        if not search.is_folder:
            page.keep(lambda row: True)
            return
        wanted: dict[bytes, dict[int, int]] = {}
        for row in page.rows:
            wanted.setdefault(row.path, {})[row.number] = row.digest
        true = {path for path, lines in wanted.items() if self._contains(search, os.fsdecode(path), lines)}
        page.keep(lambda row: row.path in true)

    def _contains(self, search: "_Search", path: str, lines: Mapping[int, int]) -> bool:
        by_name = search.request.mode == "files"
        try:
            handle = open_beneath(search.handle, path, NAMED if by_name else _READ, links=False)
            if by_name:
                os.close(handle)
                return True
            with open(handle, "rb") as file:
                return not self._boundary.places.is_linked_env_file(os.fstat(handle)) and has_lines(file, lines)
        except (OSError, ValueError):
            return False


def _check_exit(reader: SearchOutputParser, code: int, pattern: str) -> list[str] | None:
    """Notes about a finished engine; None if it failed. Raises `ToolError` for an invalid pattern."""
    if why := pattern_error(reader.messages):
        raise ToolError(f"invalid regular expression {pattern}: {why}")
    if code not in (0, 1, 2) or (code and reader.messages.strip()):
        return None
    notes = ["[some files could not be read]"] if code == 2 else []
    if reader.skipped_rows:
        notes.append(f"[{reader.skipped_rows} matches in lines that are too long to show]")
    return notes


class _Query(Struct, frozen=True):
    """The arguments of a call."""

    named: str
    """The searched path."""
    mode: SearchMode
    pattern: str
    glob: str
    context: int
    filters: tuple[GlobFilter, ...]
    offset: int
    limit: int


class _Search(Struct, frozen=True):
    request: SearchRequest
    opened: OpenedPath
    query: _Query

    @property
    def is_folder(self) -> bool:
        return self.request.start == "."

    @property
    def handle(self) -> int:
        """What is searched."""
        assert self.opened.handle is not None
        return self.opened.handle

    @property
    def display_name(self) -> str:
        """The searched path as it was given."""
        return str(self.opened.path)


def searched_path(args: Mapping[str, Json]) -> tuple[str, str]:
    """The path that a call searches, and the pattern relative to it."""
    pattern, named = str(args.get("pattern") or ""), str(args.get("path") or ".")
    if args.get("target") == "files" and pattern.startswith(("/", "~/")):
        magic = _MAGIC.search(pattern)  # search below the folder before the first wildcard
        cut = pattern.rfind("/", 0, magic.start() if magic else len(pattern))
        return pattern[:cut] or "/", pattern[cut + 1 :]
    return named, pattern


def _parse_arguments(args: Mapping[str, Json]) -> _Query:
    named, pattern = searched_path(args)
    glob, mode = str(args.get("file_glob") or ""), cast(SearchMode, args.get("output_mode") or "content")
    if args.get("target") == "files":
        mode = "files"
    elif not pattern:
        raise ToolError("pattern is empty; it would match every line")
    elif _BREAK.search(pattern):
        raise ToolError("a pattern cannot match a line break; files are searched line by line")
    context = min(max(0, int_argument(args, "context", 0)), MAX_CONTEXT) if mode == "content" else 0
    globs = [each for each in ((pattern or "*") if mode == "files" else "", glob) if each]
    try:
        sieves = tuple(GlobFilter(each) for each in globs)
    except re.error as error:
        raise ToolError(f"invalid glob {' or '.join(globs)}: {error}") from error
    offset, limit = max(0, int_argument(args, "offset", 0)), int_argument(args, "limit", DEFAULT_LIMIT)
    given = named, mode, pattern, next(iter(globs), ""), context
    return _Query(*given, sieves, offset, min(max(1, limit), MAX_LIMIT))


def _format_page(search: _Search, page: ResultPage, workdir: str) -> str:
    if not page.rows:
        return _format_no_matches(search)
    lines: list[str] = []
    before: ResultRow | None = None
    counts = Counter(row.path for row in page.rows)
    for row in page.rows:
        path = search.display_name
        if search.is_folder:
            path = os.path.join(path, os.fsdecode(row.path))
        name = quote_path(os.fsencode(display_path(path, workdir)))
        if search.request.mode != "content":
            if before is None or before.path != row.path:
                lines.append(f"{name}: {counts[row.path]}" if search.request.mode == "count" else name)
            before = row
            continue
        if before is None or before.path != row.path:
            lines += [name] if before is None else ["", name]
        elif search.request.context and row.number > before.number + 1:
            lines.append("--")
        lines.append(f"{row.number}{':' if row.match else '-'} {row.text}")
        before = row
    if page.more:
        lines += ["", f"[{_format_summary(search, page)}; more with offset={page.next_offset}]"]
    return "\n".join(lines)


def _format_no_matches(search: _Search) -> str:
    if search.query.offset:
        return f"no results after offset {search.query.offset}"
    if search.request.mode == "files":
        hint = "" if _MAGIC.search(search.request.pattern) else f"; try *{search.request.pattern}*"
        return f"no files found{hint} (hidden and ignored files are skipped)"
    return "no matches (hidden, ignored and binary files are skipped)"


def _format_summary(search: _Search, page: ResultPage) -> str:
    kinds = {"content": ("match", "matches"), "files": ("file", "files")}
    one, many = kinds.get(search.request.mode, ("file with matches", "files with matches"))
    files = len({row.path for row in page.rows})
    where = f" in {files:,} file{'s' if files > 1 else ''}" if search.request.mode == "content" and files else ""
    return f"{page.shown:,} {one if page.shown == 1 else many}{where}"
