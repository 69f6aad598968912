"""Approval of the files that a tool reads or writes: judges what was opened, and the tool uses the same.

The paths of a call are opened before it is judged, and stay open until it has ended.
"""

from contextlib import suppress

from alipes.agent.approval.paths import PathChecker, Risk
from alipes.kernel.errors import ToolError
from alipes.kernel.messages import ToolCall
from alipes.kernel.turns import Turn
from alipes.tools.boundary import FileBoundary, OpenedPath
from alipes.tools.files.patch import patched_paths
from alipes.tools.images import path_of_image
from alipes.tools.search.search_files import searched_path

WRITERS = frozenset(("write_file", "patch"))
FILE_TOOLS = WRITERS | {"read_file", "search_files", "vision_analyze", "image_generate", "send_file"}
CHANGED = "leads to another file now than when it was asked about, so the question was withdrawn"


class FileApproval:
    """Opens and judges the files of calls."""

    def __init__(self, boundary: FileBoundary) -> None:
        self.boundary = boundary

    def assess(self, call: ToolCall, key: tuple[str, str], workdir: str) -> list[Risk]:
        """The risks of a call. Its files stay open until `release`; `key`: its conversation and id."""
        checker, found = PathChecker(self.boundary.places, workdir), list[Risk]()
        for path in named_files(call):
            with suppress(ToolError, ValueError):  # the tool reports it
                real = self.boundary.hold(key, path, workdir).real
                if call.name in WRITERS:
                    risk = checker.check_opened_write(real)
                else:
                    risk = checker.check_opened_read(real) if call.name == "read_file" else None
                found += [risk] if risk is not None else []
        return found

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


def named_files(call: ToolCall) -> list[str]:
    """The paths of files that a call uses."""
    args = call.args
    if call.name == "patch":
        return patched_paths(args)
    if call.name == "search_files":
        return [searched_path(args)[0]]
    if call.name in ("vision_analyze", "image_generate"):
        more = args.get("reference_image_urls")
        sources = (args.get("path"), args.get("image_url"), *(more if isinstance(more, list) else ()))
        return [path for each in sources if isinstance(each, str) and (path := path_of_image(each))]
    named = args.get("path")
    return [named] if call.name in FILE_TOOLS and isinstance(named, str) and named else []
