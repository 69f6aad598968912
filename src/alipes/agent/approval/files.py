"""Approval of the files that a tool reads or writes: judges what was opened, and the tool uses the same.

The paths of a call are opened before it is judged, and stay open until it has ended.
"""

import os
from collections.abc import Iterator, Mapping
from contextlib import suppress
from typing import TYPE_CHECKING

import msgspec

from alipes.agent.approval.risk import Risk
from alipes.config.protected_paths import is_environment_file
from alipes.kernel.approvals import FILE_ACCESS
from alipes.kernel.conversations import ApprovalDecision
from alipes.kernel.errors import ToolError
from alipes.kernel.messages import Json, ToolCall
from alipes.kernel.turns import Turn
from alipes.runtime.sandbox.backend import CommandScope
from alipes.runtime.sandbox.policy import is_inside
from alipes.store.sql.approvals import ApprovalStore
from alipes.tools.boundary import FileBoundary, OpenedPath
from alipes.tools.images import path_of_image

if TYPE_CHECKING:
    from alipes.agent.approval.paths import PathChecker

COMMANDS = frozenset(("terminal", "process", "execute_code"))
WRITERS = frozenset(("write_file", "patch"))
FILE_TOOLS = WRITERS | {"read_file", "search_files", "vision_analyze", "image_generate", "send_file"}
CHANGED = "leads to another file now than when it was asked about, so the question was withdrawn"


class FileApproval:
    """Opens and judges the files of calls."""

    def __init__(self, boundary: FileBoundary, approvals: ApprovalStore | None = None) -> None:
        """`approvals`: rights that were given earlier."""
        self.boundary, self._approvals = boundary, approvals
        self._loaded: dict[str, str] = {}
        """By conversation: the turn for which its rights were read."""

    def assess(self, call: ToolCall, key: tuple[str, str], workdir: str, turn: Turn | None = None) -> list[Risk]:
        """The risks of a call. Its files stay open until `release`; `key`: its conversation and id."""
        from alipes.agent.approval.paths import PathChecker  # noqa: PLC0415

        checker, found, outside = PathChecker(self.boundary.places, workdir), list[Risk](), list[str]()
        for path in named_files(call):
            with suppress(ToolError, ValueError):  # the tool reports it
                real, scope = self.boundary.hold(key, path, workdir).real, CommandScope(key[0], workdir, turn)
                if self.boundary.is_made_by_commands(real, scope):
                    continue
                if risk := self._judge(checker, call.name, real):
                    found.append(risk)
                elif not self.boundary.may_use(real, scope, write=call.name in WRITERS):
                    outside.append(real)
        return [*found, *self._ask_about(call, outside)]

    def _judge(self, checker: "PathChecker", tool: str, real: str) -> Risk | None:
        """A risk that the name of a file says."""
        if tool in WRITERS:
            risk = checker.check_opened_write(real) or _assess_environment_file(real)
            return risk if risk is None or risk.rule != "write" else None  # asked about as outside of the project
        return checker.check_opened_read(real) if tool == "read_file" else None

    def _ask_about(self, call: ToolCall, outside: list[str]) -> Iterator[Risk]:
        """One question about the paths that are outside of the project."""
        if not outside:
            return
        home, writes = os.path.realpath(self.boundary.places.home), call.name in WRITERS
        action, setting = ("write", "sandbox.write") if writes else ("read", "sandbox.read")
        shown = [_shorten(path, home) for path in dict.fromkeys(outside)]
        covers = {_shorten(find_cover(path, home), home) for path in outside}
        args: dict[str, Json] = {"action": action, "path": ", ".join(shown), "folder": ", ".join(sorted(covers))}
        which = "this file is" if len(shown) == 1 else "these files are"
        reason = f"{action}s {', '.join(shown)}, which is outside of the project and not in {setting}"
        question = ToolCall(call.id, FILE_ACCESS, args)
        yield Risk("write" if writes else "read", reason, why=f"{which} outside of the project", question=question)

    async def before_tool(self, call: ToolCall, turn: Turn) -> None:
        """Hook: before the first command of a turn, show commands what is allowed in this conversation and project."""
        if call.name not in COMMANDS or self._approvals is None or self._loaded.get(turn.session) == turn.id:
            return
        self._loaded[turn.session] = turn.id
        found = [
            (right, msgspec.json.decode(right.arguments, type=dict[str, str]))
            for right in await self._approvals.list_current()
            if right.tool == FILE_ACCESS and right.workdir == turn.inbound.workdir and right.choice is not None
        ]
        held = [args for right, args in found if right.choice == "always" or right.session == turn.session]
        self.boundary.set_grants(turn.session, [(args["action"], path) for args in held for path in self._paths(args)])

    def _paths(self, args: Mapping[str, Json]) -> list[str]:
        """The real paths that a right covers."""
        home = os.path.realpath(self.boundary.places.home)
        folders = str(args["folder"]).split(", ")
        return [home + each[1:] if each == "~" or each.startswith("~/") else each for each in folders]

    def note_answer(self, risk: Risk, turn: Turn, decision: ApprovalDecision) -> None:
        """Commands see what the file tools were allowed to see, as long as the right lasts."""
        if risk.question is None or decision not in ("session", "always"):
            return
        for path in self._paths(risk.question.args):
            self.boundary.grant(turn.session, str(risk.question.args["action"]), path)

    def why_withdrawn(self, call: ToolCall, turn: Turn) -> str:
        """Why an approved call must not run: a path no longer leads to what was judged. Empty if it may."""
        key, workdir = (turn.session, call.id), turn.inbound.workdir
        changed = [path for path in named_files(call) if not self._leads_to_same(key, path, workdir)]
        return f"Not run: {changed[0]} {CHANGED}." if changed else ""

    def _leads_to_same(self, key: tuple[str, str], path: str, workdir: str) -> bool:
        try:
            held = self.boundary.hold(key, path, workdir)
            with OpenedPath(str(held.path)) as now:
                return held.leads_to_same(now)
        except (OSError, ToolError, ValueError):
            return False

    async def after_tool(self, call: ToolCall, turn: Turn) -> None:
        """Hook: the call has ended."""
        self.boundary.release(turn.session, call.id)

    async def turn_ended(self, turn: Turn) -> None:
        """Hook: no call of the turn will run any longer."""
        self.boundary.release(turn.session)


def _assess_environment_file(path: str) -> Risk | None:
    reason = f"changes {path}, from which programs load their settings"
    why = "programs load their settings from this file"
    return Risk("trusted", reason, "workspace", paths=(path,), why=why) if is_environment_file(path) else None


def named_files(call: ToolCall) -> list[str]:
    """The paths of files that a call uses."""
    args = call.args
    if call.name == "patch":
        from alipes.tools.files.patch import patched_paths  # noqa: PLC0415

        return patched_paths(args)
    if call.name == "search_files":
        from alipes.tools.search.search_files import searched_path  # noqa: PLC0415

        return [searched_path(args)[0]]
    if call.name in ("vision_analyze", "image_generate"):
        more = args.get("reference_image_urls")
        sources = (args.get("path"), args.get("image_url"), *(more if isinstance(more, list) else ()))
        return [path for each in sources if isinstance(each, str) and (path := path_of_image(each))]
    named = args.get("path")
    return [named] if call.name in FILE_TOOLS and isinstance(named, str) and named else []


def find_cover(path: str, home: str) -> str:
    """The folder that a longer right covers: the repository around a file, else its folder; the file itself if that
    would be the home, a folder around it or settings in it."""
    folder = os.path.dirname(path)
    cover, above = folder, folder
    while above != "/" and not is_inside(home, above):
        if os.path.lexists(os.path.join(above, ".git")):
            cover = above
            break
        above = os.path.dirname(above)
    hidden = is_inside(path, home) and path[len(home) + 1 :].startswith(".")
    return path if hidden or is_inside(home, cover) or cover.count("/") < 2 else cover


def _shorten(path: str, home: str) -> str:
    return "~" + path[len(home) :] if is_inside(path, home) else path
