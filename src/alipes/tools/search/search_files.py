"""`search_files`: searches file contents or names, with ripgrep or else with our walker."""

import asyncio
import os
import re
import shutil
import stat
from collections.abc import Callable, Mapping
from typing import cast

from msgspec import Struct

from alipes.kernel.errors import ToolError
from alipes.kernel.lazy import lazy_pattern
from alipes.kernel.messages import Json
from alipes.kernel.ports import ToolContext, ToolSpec
from alipes.runtime.processes.child import open_child
from alipes.runtime.processes.process_tree import OrphanGuard
from alipes.tools.common import Places, describe_file_type, int_argument, make_schema, suggest_name
from alipes.tools.files.text_file import display_path, error_reason
from alipes.tools.search.ripgrep import (
    ResultPage,
    ResultRow,
    SearchMode,
    SearchOutputParser,
    SearchRequest,
    pattern_error,
    quote_path,
    ripgrep_command,
    walker_command,
)
from alipes.tools.search.walker import GlobFilter

DEFAULT_LIMIT, MAX_LIMIT = 50, 500
MAX_CONTEXT = 10
TIMEOUT_S = 60.0
_BREAK = lazy_pattern(r"\n|(?<!\\)(?:\\\\)*\\n")
_MAGIC = lazy_pattern(r"[*?\[{]")


class SearchFiles:
    """The `search_files` tool. Skips hidden, ignored and binary files, and files with secrets."""

    spec = ToolSpec(
        name="search_files",
        description="Search file contents by regex, or file names by glob (target=files). Skips hidden, git-ignored "
        "and binary files.",
        schema=make_schema(
            "pattern",
            pattern="string",
            target=["content", "files"],
            path="string",
            file_glob="string: *.py",
            limit="integer",
            offset="integer",
            output_mode=["content", "files_only", "count"],
            context="integer: lines",
        ),
        effect="read",
    )

    def __init__(
        self,
        env: Mapping[str, str],
        places: Places,
        *,
        keeper: OrphanGuard | None = None,
        mask: Callable[[str], str] = str,
        program: str | None = None,
        seconds: float = TIMEOUT_S,
    ) -> None:
        """`program` is the path of ripgrep: empty to use the walker, None to look for it in PATH of `env`."""
        self._env, self._places, self._keeper, self._mask = env, places, keeper, mask
        self._program, self._seconds = program, seconds

    async def run(self, args: Mapping[str, Json], act: ToolContext) -> str:
        search = await asyncio.to_thread(_parse_arguments, args, self._places, act.workdir)
        page, notes = await self._search(search)
        await act.progress(_format_summary(search, page))
        return "\n".join([self._mask(_format_page(search, page, act.workdir)), *notes])

    async def _search(self, search: "_Search") -> tuple[ResultPage, list[str]]:
        """The page of results, and notes for the model."""
        if self._program is None:
            self._program = shutil.which("rg", path=self._env.get("PATH", os.defpath)) or ""
        engines = [ripgrep_command(self._program, search.request)] if self._program else []
        for argv in (*engines, walker_command(search.request)):
            order = search.request
            page = ResultPage(order.mode, offset=search.offset, limit=search.limit, context=order.context)
            notes = await self._run_engine(argv, search, page)
            if notes is not None:
                page.trim()
                return page, notes
        raise ToolError("the search failed to run; use the terminal tool")

    async def _run_engine(self, argv: list[str], search: "_Search", page: ResultPage) -> list[str] | None:
        """Fill the page from an engine; returns notes, or None if the engine failed."""
        reader = SearchOutputParser(search.request.mode)
        try:
            async with (
                asyncio.timeout(self._seconds) as limit,
                open_child(argv, cwd=search.request.folder, env=self._env, keeper=self._keeper) as child,
            ):
                while piece := await child.read():
                    if any(page.add(each) for each in reader.feed(piece) if self._may_show(each, search)):
                        return []
                code = await child.wait()
        except OSError:  # a TimeoutError is one
            if limit.expired():
                return [f"[stopped after {self._seconds:.0f} s; narrow path or file_glob]"]
            return None
        reader.finish()
        return _check_exit(reader, code, search.request.pattern)

    def _may_show(self, finding: ResultRow, search: "_Search") -> bool:
        path = os.fsdecode(finding.path).removeprefix("./")
        if search.request.start != ".":
            return True
        if any(part.startswith(".") for part in path.split("/")) or not all(each(path) for each in search.filters):
            return False
        return search.request.mode == "files" or not self._places.is_withheld(os.path.join(search.request.folder, path))


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


class _Search(Struct, frozen=True):
    request: SearchRequest
    display_name: str
    """The searched path as it was given."""
    filters: tuple[GlobFilter, ...]
    offset: int
    limit: int


def _parse_arguments(args: Mapping[str, Json], places: Places, workdir: str) -> _Search:
    pattern, glob = str(args["pattern"]), str(args.get("file_glob") or "")
    named, mode = str(args.get("path") or "."), cast(SearchMode, args.get("output_mode") or "content")
    if args.get("target") == "files":
        mode = "files"
        if pattern.startswith(("/", "~/")):
            magic = _MAGIC.search(pattern)  # search below the folder before the first wildcard
            cut = pattern.rfind("/", 0, magic.start() if magic else len(pattern))
            named, pattern = pattern[:cut] or "/", pattern[cut + 1 :]
    elif not pattern:
        raise ToolError("pattern is empty; it would match every line")
    elif _BREAK.search(pattern):
        raise ToolError("a pattern cannot match a line break; files are searched line by line")
    context = min(max(0, int_argument(args, "context", 0)), MAX_CONTEXT) if mode == "content" else 0
    place, folder, start = _locate(places, named, workdir)
    globs = [each for each in ((pattern or "*") if mode == "files" else "", glob) if each]
    try:
        sieves = tuple(GlobFilter(each) for each in globs)
    except re.error as error:
        raise ToolError(f"invalid glob {' or '.join(globs)}: {error}") from error
    order = SearchRequest(folder, mode, pattern, start, next(iter(globs), ""), context)
    offset, limit = max(0, int_argument(args, "offset", 0)), int_argument(args, "limit", DEFAULT_LIMIT)
    return _Search(order, place, sieves, offset, min(max(1, limit), MAX_LIMIT))


def _locate(places: Places, named: str, workdir: str) -> tuple[str, str, str]:
    """The path as given, the folder the engine runs in, and its start relative to that."""
    place = places.resolve(named, workdir)
    try:
        real = os.path.realpath(place)
        facts = os.stat(real)
    except FileNotFoundError:
        raise ToolError(f"{place} does not exist.{suggest_name(place)}") from None
    except (OSError, ValueError) as error:
        raise ToolError(f"{place} cannot be searched: {error_reason(error)}") from error
    if stat.S_ISDIR(facts.st_mode):
        return str(place), real, "."
    if not stat.S_ISREG(facts.st_mode):
        raise ToolError(f"{place} is {describe_file_type(facts.st_mode)}; only files and directories can be searched")
    if places.secrecy(real) or places.is_linked_env_file(facts):
        raise ToolError(f"{place} holds secrets and is not searched")
    return str(place), os.path.dirname(real), f"./{os.path.basename(real)}"


def _format_page(search: _Search, page: ResultPage, workdir: str) -> str:
    if not page.rows:
        return _format_no_matches(search)
    lines: list[str] = []
    before: ResultRow | None = None
    for row in page.rows:
        path = search.display_name
        if search.request.start == ".":
            path = os.path.join(path, os.fsdecode(row.path))
        name = quote_path(os.fsencode(display_path(path, workdir)))
        if search.request.mode != "content":
            lines.append(f"{name}: {row.number}" if search.request.mode == "count" else name)
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
    if search.offset:
        return f"no results after offset {search.offset}"
    if search.request.mode == "files":
        hint = "" if _MAGIC.search(search.request.pattern) else f"; try *{search.request.pattern}*"
        return f"no files found{hint} (hidden and ignored files are skipped)"
    return "no matches (hidden, ignored and binary files are skipped)"


def _format_summary(search: _Search, page: ResultPage) -> str:
    kinds = {"content": ("match", "matches"), "files": ("file", "files")}
    one, many = kinds.get(search.request.mode, ("file with matches", "files with matches"))
    files = len({row.path for row in page.rows})
    where = f" in {files:,} file{'s' if files > 1 else ''}" if search.request.mode == "content" and files else ""
    return f"{page.count:,} {one if page.count == 1 else many}{where}"
