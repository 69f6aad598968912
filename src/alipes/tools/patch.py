"""Change files: one piece of text for another, or a whole patch over several files, all of it or nothing."""

from collections.abc import Callable, Mapping
from functools import partial

from alipes.kernel.errors import ToolError
from alipes.kernel.messages import Json
from alipes.kernel.ports import Act, ToolSpec
from alipes.tools.aside import Gate, aside
from alipes.tools.desk import Desk
from alipes.tools.patch_text import FileEdit, is_envelope, read_envelope
from alipes.tools.paths import Places
from alipes.tools.unified import is_unified, read_bare, read_unified
from alipes.tools.writing import write


class Patch:
    """The `patch` tool. Small lapses in remembering the text are forgiven, two meanings never."""

    spec = ToolSpec(
        name="patch",
        description="Edit text files. mode=replace: in path, old_string (there only once) becomes new_string."
        " mode=patch: apply a unified diff or `*** Begin Patch` to any number of files, all or nothing.",
        schema={
            "type": "object",
            "properties": {
                "mode": {"type": "string", "enum": ["replace", "patch"]},
                "path": {"type": "string"},
                "old_string": {"type": "string"},
                "new_string": {"type": "string"},
                "replace_all": {"type": "boolean"},
                "patch": {"type": "string"},
            },
            "required": ["mode"],
        },
    )

    def __init__(self, places: Places, *, mask: Callable[[str], str] = str) -> None:
        """`mask` takes secrets out of what is shown."""
        self._places, self._mask = places, mask

    async def run(self, args: Mapping[str, Json], act: Act) -> str:
        fill = _replacing(args) if args["mode"] == "replace" else _patching(args)
        try:
            told, diff = await aside(partial(_done, fill, Desk(self._places, act.workdir)))
        except ToolError as error:  # it may quote the file
            raise ToolError(self._mask(str(error))) from error
        if diff:
            await act.progress(self._mask(diff))
        return told


def touched(args: Mapping[str, Json]) -> list[str]:
    """Every path that a call would write, move or delete, for whoever has to allow it; none for no patch."""
    try:
        if args.get("mode") == "replace":
            return [str(args["path"])] if args.get("path") else []
        edits = _edits(str(args.get("patch") or ""), str(args.get("path") or ""))
    except ToolError:
        return []
    return [path for edit in edits for path in (edit.path, edit.to) if path]


def _replacing(args: Mapping[str, Json]) -> Callable[[Desk], None]:
    missing = [name for name in ("path", "old_string", "new_string") if not isinstance(args.get(name), str)]
    if missing:
        raise ToolError(f"mode replace needs {' and '.join(missing)}")
    old, new = str(args["old_string"]), str(args["new_string"])
    everywhere = args.get("replace_all") is True
    return lambda desk: desk.replace(str(args["path"]), old, new, everywhere=everywhere)


def _patching(args: Mapping[str, Json]) -> Callable[[Desk], None]:
    text = args.get("patch")
    if not isinstance(text, str) or not text.strip():
        raise ToolError("mode patch needs patch: the text of the patch")
    edits = _edits(text, str(args.get("path") or ""))

    def fill(desk: Desk) -> None:
        try:
            desk.apply(edits)
        except ToolError as error:
            raise ToolError(f"{error}\nNo file was changed.") from error

    return fill


def _edits(text: str, path: str) -> list[FileEdit]:
    if is_envelope(text):
        return read_envelope(text)
    if is_unified(text):
        return read_unified(text)
    if path and any(line.startswith("@@") for line in text.split("\n")):
        return read_bare(text, path)
    raise ToolError(
        "this is no patch: it needs lines like `*** Update File: path` between `*** Begin Patch` and"
        " `*** End Patch`, or the `---`, `+++` and `@@` lines of a unified diff"
    )


def _done(fill: Callable[[Desk], None], desk: Desk, gate: Gate) -> tuple[str, str]:
    """In a thread: do it all; what is to be said of it, and the diff."""
    fill(desk)
    sheets = desk.changed()
    if not sheets:
        raise ToolError("nothing would change: the files are already as they would become")
    moved = [sheet.origin for sheet in sheets if sheet.origin is not None]
    shown = [(sheet, sheet.diff) for sheet in sheets if sheet not in moved]
    told = "\n".join(sheet.told(diff) for sheet, diff in shown)
    write([sheet.change() for sheet in sheets], gate)
    return told, "\n".join(diff.text for _, diff in shown if diff.text)
