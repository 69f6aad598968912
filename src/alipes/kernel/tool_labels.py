"""How tool calls and their results are named for people: "Run npm test", "12 matches in 3 files". Pure functions."""

import re
from collections.abc import Callable, Iterable
from typing import TypeAlias

from msgspec import Struct

from alipes.kernel.formatting import format_count
from alipes.kernel.lazy import lazy_pattern
from alipes.kernel.mcp import split_mcp_name
from alipes.kernel.messages import Json, ToolCall, ToolResult

MAX_OUTCOME_CHARS = 60
_MAIN_ARGUMENTS = ("command", "path", "pattern", "query", "url", "question", "goal", "name", "prompt")
_EDITED = lazy_pattern(r"^(?:\*\*\* (?:Update|Add|Delete) File: |\+\+\+ (?:b/)?)(?!/dev/null)(\S.*?)\s*$", re.MULTILINE)
_PROCESS_VERBS = {
    "list": ("List", "background processes"),
    "poll": ("Check", ""),
    "log": ("Read output of", ""),
    "wait": ("Wait for", ""),
    "kill": ("Stop", ""),
    "write": ("Type into", ""),
    "close": ("Close the input of", ""),
}
_STATUS = lazy_pattern(r"^\[(exit code -?\d+|killed by \w+|timed out[^\]]*)[^\]]*\]$", re.MULTILINE)
_PROCESS_STATUS = lazy_pattern(r"\[(p\d+) (?:is |was )?((?:running|ended|killed)[^\]]*)\]\s*\Z")
_REFUSED = lazy_pattern(r"^\[The user said no to .* The command was stopped\.\]$", re.MULTILINE)
"""The last line of a command that was ended because a person did not allow what it wanted to do."""
_OMITTED = lazy_pattern(r"^\[\.\.\. [\d,]+ bytes in ([\d,]+) lines omitted; .* \.\.\.\]$", re.MULTILINE)
_SLICE = lazy_pattern(r"^\[(?:from [\w-]+; )?lines ([\d,]+)-([\d,]+)( of [\d,]+)?")
_SEARCH_MORE = lazy_pattern(r"^\[(.*); more with offset=\d+\]$", re.MULTILINE)
_CHANGE = lazy_pattern(r"^(created|updated|deleted|moved|unchanged)\b.*?\((?:[\d,]+ bytes(?:, )?)?(?:\+(\d+) -(\d+))?")
_PAGE_SIZE = lazy_pattern(r"^\[\d+\] .*\n\S+\n\[([\d,]+) characters", re.MULTILINE)
_FOR_MODEL = lazy_pattern(r"\s*(?:\(rule: [^)]*\)\s*)?(?:Do not try to work around|Finish your investigation)")
_MARKS = lazy_pattern(r"^</?untrusted\b[^>\n]*>(?:\n|\Z)", re.MULTILINE)
"""Tags around the words of others, which are for the model."""
_BY_PERSON = "; denied by the user"
"""In the result of a call that a person did not allow, who has seen why it was risky."""
_NOBODY = lazy_pattern(r"(.+?)(?:, which [^;]*)? \(rule: [^)]*\); nobody is available to approve it")
"""The same where nobody could be asked."""
_WORDS = {"failed": "failed", "denied": "denied", "cancelled": "stopped", "unknown": "result unknown"}


class ToolLabel(Struct, frozen=True):
    verb: str
    object: str = ""

    @property
    def text(self) -> str:
        """Both on one line."""
        return " ".join(f"{self.verb} {self.object}".split())


def describe_tool(call: ToolCall) -> ToolLabel:
    """The call in plain words; a tool that is not built in keeps its name."""
    describe = _LABELS.get(call.name)
    if describe is not None:
        return describe(call.args)
    parts = split_mcp_name(call.name)
    return ToolLabel(f"{parts[0]}: {parts[1]}" if parts else call.name, _main_argument(call.args))


def describe_activity(call: ToolCall) -> str:
    """What happens while the call runs: "running a command", "reading"."""
    parts = split_mcp_name(call.name)
    name = f"{parts[0]}: {parts[1]}" if parts else call.name
    return _ACTIVITIES.get(call.name) or f"running {' '.join(name.split())[:40]}"


def is_builtin(call: ToolCall) -> bool:
    return call.name in _LABELS


def describe_outcome(call: ToolCall, result: ToolResult) -> str:
    """The result in a few words, on one line; never empty."""
    if result.outcome != "ok":
        return _WORDS[result.outcome]
    describe = _OUTCOMES.get(call.name, _describe_text)
    line = " ".join(describe(result).split())
    return line if len(line) <= MAX_OUTCOME_CHARS else line[: MAX_OUTCOME_CHARS - 1].rstrip() + "…"


def find_problem(result: ToolResult) -> str:
    """How a command failed, such as `exit code 2`; empty if it succeeded or is not a command."""
    if _REFUSED.search(result.text[-4000:]):
        return "stopped by your no"
    found = _STATUS.findall(result.text[-4000:])
    return "" if not found or found[-1] == "exit code 0" else str(found[-1])


def problem_of(result: ToolResult) -> str:
    """The text of a result that is not ok, without what only the model has to know."""
    if result.outcome != "denied":
        return _MARKS.sub("", result.text).rstrip("\n")
    text = _FOR_MODEL.split(result.text.removeprefix("Not run: "), maxsplit=1)[0]
    if found := _NOBODY.match(text):
        named = "force-push needs" if found[1] == "it force-pushes" else f"{found[1]}, which needs"
        return f"{named} approval (use --yes)"
    return "" if _BY_PERSON in text else text


def output_of(result: ToolResult) -> str:
    """The output of a command, without the lines that say how it ended."""
    text = _REFUSED.sub("", _PROCESS_STATUS.sub("", result.text))
    if found := [*_STATUS.finditer(text)]:
        text = text[: found[-1].start()]
    text = text.rstrip("\n")
    return "" if text in ("(no output)", "(no output yet)", "(no new output)") else text


def count_lines(text: str) -> int:
    """Lines of an output that are not blank; those that were left out are counted too."""
    omitted = sum(int(found.replace(",", "")) for found in _OMITTED.findall(text))
    shown = sum(bool(line.strip()) for line in _OMITTED.sub("", text).split("\n"))
    return shown + omitted


Args: TypeAlias = dict[str, Json]


def _main_argument(args: Args) -> str:
    texts = [value for name in _MAIN_ARGUMENTS if isinstance(value := args.get(name), str) and value]
    return texts[0] if texts else ", ".join(f"{name}={value}" for name, value in args.items())


def _text(args: Args, name: str) -> str:
    value = args.get(name)
    return value if isinstance(value, str) else ""


def _label_terminal(args: Args) -> ToolLabel:
    return ToolLabel("Start" if args.get("background") is True else "Run", _text(args, "command"))


def _label_process(args: Args) -> ToolLabel:
    verb, object = _PROCESS_VERBS.get(_text(args, "action"), ("Check", ""))
    return ToolLabel(verb, object or _text(args, "session_id"))


def _label_read(args: Args) -> ToolLabel:
    path, first, limit = _text(args, "path"), args.get("offset"), args.get("limit")
    if not isinstance(first, int) or first < 1:
        return ToolLabel("Read", path)
    if isinstance(limit, int):
        return ToolLabel("Read", f"{path}:{first}-{first + limit - 1}")
    return ToolLabel("Read", f"{path} from line {first}" if first > 1 else path)


def _label_patch(args: Args) -> ToolLabel:
    found = dict.fromkeys(_EDITED.findall(_text(args, "patch")))
    return ToolLabel("Edit", ", ".join(found) or _text(args, "path"))


def _label_search(args: Args) -> ToolLabel:
    verb = "Find" if args.get("target") == "files" else "Search"
    glob, place = _text(args, "file_glob"), _text(args, "path")
    where = " ".join(each for each in (glob, place if place != "." else "") if each)
    return ToolLabel(verb, f"{_text(args, 'pattern')} in {where}" if where else _text(args, "pattern"))


def _label_delegate(args: Args) -> ToolLabel:
    tasks = args.get("tasks")
    goal = _text(args, "goal")
    if isinstance(tasks, list) and len(tasks) > 1:
        return ToolLabel("Delegate", f"{len(tasks)} tasks: {goal}" if goal else f"{len(tasks)} tasks")
    return ToolLabel("Delegate", goal or next(iter(task_goals(args)), ""))


def task_goals(args: Args) -> tuple[str, ...]:
    """The goals of the subagents that a call of delegate_task starts, in order."""
    tasks = args.get("tasks")
    if not isinstance(tasks, list) or not tasks:
        return (_text(args, "goal"),)
    return tuple(str(task.get("goal") or "") if isinstance(task, dict) else str(task) for task in tasks)


def _label_web_extract(args: Args) -> ToolLabel:
    urls = args.get("urls")
    hosts = dict.fromkeys(_host_of(str(url)) for url in urls) if isinstance(urls, list) else {}
    return ToolLabel("Read", ", ".join(hosts))


def _host_of(url: str) -> str:
    return url.partition("://")[2].partition("/")[0].rpartition("@")[2] or url


def _label_memory(args: Args) -> ToolLabel:
    verbs = {"add": "Remember", "replace": "Correct the note", "remove": "Forget", "read": "Read notes"}
    content = "" if args.get("action") == "read" else _text(args, "content") or _text(args, "old_text")
    return ToolLabel(verbs.get(_text(args, "action"), "Memory"), content)


def _label_select(args: Args) -> ToolLabel:
    options = args.get("options")
    return ToolLabel("Choose", ", ".join(map(str, options)) if isinstance(options, list) else "")


_LABELS: dict[str, Callable[[Args], ToolLabel]] = {
    "terminal": _label_terminal,
    "agent_tool": lambda args: ToolLabel("Run" if args.get("kind") == "execute" else "", _text(args, "title")),
    "process": _label_process,
    "file_access": lambda args: ToolLabel(_text(args, "action").capitalize(), _text(args, "path")),
    "read_file": _label_read,
    "write_file": lambda args: ToolLabel("Write", _text(args, "path")),
    "patch": _label_patch,
    "search_files": _label_search,
    "execute_code": lambda args: ToolLabel("Run Python", _text(args, "code")),
    "todo": lambda args: ToolLabel("Plan"),
    "memory": _label_memory,
    "delegate_task": _label_delegate,
    "mixture_of_agents": lambda args: ToolLabel("Ask several models", _text(args, "prompt")),
    "clarify": lambda args: ToolLabel("Ask", _text(args, "question")),
    "send_file": lambda args: ToolLabel("Send", _text(args, "path")),
    "cronjob": lambda args: ToolLabel(
        "Schedule", " ".join(_text(args, key) for key in ("action", "name", "when") if args.get(key))
    ),
    "tool_search": lambda args: ToolLabel("Find tools", _text(args, "query")),
    "skills_list": lambda args: ToolLabel("List skills", _text(args, "query")),
    "skill_view": lambda args: ToolLabel("Read the skill", f"{_text(args, 'name')} {_text(args, 'file')}".rstrip()),
    "skill_manage": lambda args: ToolLabel("Change skills", f"{_text(args, 'action')} {_text(args, 'name')}".strip()),
    "vision_analyze": lambda args: ToolLabel("Look at", _text(args, "path") or _text(args, "image_url")),
    "image_generate": lambda args: ToolLabel("Generate image", _text(args, "prompt")),
    "mcp_read_resource": lambda args: ToolLabel("Read", f"{_text(args, 'server')}:{_text(args, 'uri')}"),
    "session_search": lambda args: ToolLabel("Search conversations for", _text(args, "query") or _text(args, "around")),
    "web_search": lambda args: ToolLabel("Search the web for", _text(args, "query")),
    "web_extract": _label_web_extract,
    "browser_navigate": lambda args: ToolLabel("Open", _text(args, "url")),
    "browser_snapshot": lambda args: ToolLabel("Look at the page", _text(args, "ref")),
    "browser_click": lambda args: ToolLabel("Click", _text(args, "ref")),
    "browser_type": lambda args: ToolLabel("Type into", _text(args, "ref")),
    "browser_press": lambda args: ToolLabel("Press", _text(args, "key")),
    "browser_select": _label_select,
    "browser_scroll": lambda args: ToolLabel("Scroll", _text(args, "ref") or _text(args, "direction") or "down"),
    "browser_back": lambda args: ToolLabel("Go back"),
    "browser_screenshot": lambda args: ToolLabel("Take a screenshot", _text(args, "ref")),
    "browser_download": lambda args: ToolLabel("Download", _text(args, "url") or _text(args, "ref")),
    "browser_console": lambda args: ToolLabel("Read the console"),
    "browser_upload": lambda args: ToolLabel("Upload", f"{_text(args, 'path')} to {_text(args, 'site')}"),
}


_ACTIVITIES = {
    "terminal": "running a command",
    "agent_tool": "working",
    "process": "checking a background job",
    "read_file": "reading",
    "write_file": "writing a file",
    "patch": "editing",
    "search_files": "searching",
    "execute_code": "running Python",
    "todo": "planning",
    "memory": "updating its notes",
    "delegate_task": "running subagents",
    "mixture_of_agents": "asking several models",
    "clarify": "waiting for your answer",
    "send_file": "sending a file",
    "cronjob": "looking at schedules",
    "tool_search": "looking for tools",
    **dict.fromkeys(("skills_list", "skill_view"), "reading a skill"),
    "skill_manage": "changing a skill",
    "vision_analyze": "looking at an image",
    "image_generate": "generating an image",
    "mcp_read_resource": "reading",
    "session_search": "searching conversations",
    "web_search": "searching the web",
    "web_extract": "reading the web",
    **dict.fromkeys(("browser_navigate", "browser_back"), "loading a page"),
    **dict.fromkeys(("browser_snapshot", "browser_screenshot", "browser_console"), "looking at a page"),
    **dict.fromkeys(
        ("browser_click", "browser_type", "browser_press", "browser_select", "browser_scroll"), "using a page"
    ),
    "browser_download": "downloading a file",
    "browser_upload": "uploading a file",
}


def _describe_text(result: ToolResult) -> str:
    """A short line itself; of more, the number of lines."""
    lines = [line for line in result.text.split("\n") if line.strip()]
    if len(lines) == 1 and len(lines[0].strip()) <= MAX_OUTCOME_CHARS:
        return lines[0]
    return format_count(len(lines), "line") if lines else "done"


def _describe_command(result: ToolResult) -> str:
    if started := _PROCESS_STATUS.search(result.text):
        return f"{started[1]} {started[2].removeprefix('running ').partition(', where')[0]}"
    if problem := find_problem(result):
        return problem
    lines = count_lines(output_of(result))
    return format_count(lines, "line") if lines else "no output"


def _describe_process(result: ToolResult) -> str:
    if found := _PROCESS_STATUS.search(result.text):
        return found[2]
    if result.text.startswith("(no background processes)"):
        return "none"
    running = sum(" is running (" in line for line in result.text.split("\n"))
    return f"{running} running of {count_lines(result.text)}"


def _describe_read(result: ToolResult) -> str:
    text = result.text
    if text.startswith("[") and result.images:
        return text.strip("[]")
    if found := re.match(r"\[.* is a directory with ([\d,]+) entr(?:y|ies)\]", text):
        return "1 entry" if found[1] == "1" else f"{found[1]} entries"
    if found := _SLICE.match(text):
        return f"lines {found[1]}-{found[2]}{found[3] or ''}"
    if text.startswith("(empty file)"):
        return "empty"
    if text.startswith("[") and (found := re.match(r"\[.* is (.*?); use the terminal tool", text)):
        return found[1]
    return format_count(text.count("\n") + (not text.endswith("\n")), "line")


def _describe_search(result: ToolResult) -> str:
    text = result.text
    if text.startswith("no "):
        return text.partition(" (")[0].partition(";")[0]
    if more := _SEARCH_MORE.search(text):
        return f"{more[1]}, and more"
    lines = [line for line in text.split("\n") if line and not line.startswith("[")]
    numbered = [line for line in lines if re.match(r"\d+[:-] ", line)]
    if numbered:
        matches = sum(bool(re.match(r"\d+: ", line)) for line in numbered)
        files = len([line for line in lines if line != "--"]) - len(numbered)
        return f"{matches:,} {'match' if matches == 1 else 'matches'} in {format_count(files, 'file')}"
    counts = [re.search(r": (\d+)$", line) for line in lines]
    if lines and all(counts):
        total = sum(int(each[1]) for each in counts if each)
        return f"{total:,} {'match' if total == 1 else 'matches'} in {format_count(len(lines), 'file')}"
    return format_count(len(lines), "file")


def _describe_change(result: ToolResult) -> str:
    changes = [found for line in result.text.split("\n") if (found := _CHANGE.match(line))]
    if not changes:
        return _describe_text(result)
    words = [found[1] for found in changes if found[1] != "updated"]
    sizes = _format_sizes((int(found[2] or 0), int(found[3] or 0)) for found in changes)
    if len(changes) > 1:
        return ", ".join(filter(None, (f"{len(changes)} files", sizes)))
    return ", ".join(filter(None, (*words, sizes))) or "updated"


def _format_sizes(changes: Iterable[tuple[int, int]]) -> str:
    pairs = list(changes)
    came, went = sum(pair[0] for pair in pairs), sum(pair[1] for pair in pairs)
    return " ".join(part for part in (f"+{came}" if came else "", f"-{went}" if went else "") if part)


def _describe_plan(result: ToolResult) -> str:
    states = [state for state, _ in plan_items(result.text)]
    return f"{states.count('x')} of {len(states)} done" if states else "empty"


def plan_items(text: str) -> list[tuple[str, str]]:
    """The items in a result of the todo tool. The state is `x` for done, `>` for in progress, a space for open or `-`
    for cancelled."""
    return re.findall(r"^\[([ >x-])\] [^:\n]*: (.*)$", text, re.MULTILINE)


def _describe_delegation(result: ToolResult) -> str:
    if found := re.match(r"(\d+) of ([\d,]+) tasks? done\.", result.text):
        return f"{found[1]} of {found[2]} done"
    if result.text.startswith("Running in the background"):
        return f"{len(result.text.strip().splitlines()) - 1} in the background"
    found = re.match(r"1\. “.*?”: ([^(\n]*\([^)\n]*\))", result.text)
    return found[1] if found else _describe_text(result)


def _describe_web_search(result: ToolResult) -> str:
    return format_count(len(result.sources), "result") if result.sources else "no results"


def _describe_web_extract(result: ToolResult) -> str:
    sizes = [int(size.replace(",", "")) for size in _PAGE_SIZE.findall(result.text)][: len(result.sources)]
    text = f"{sum(sizes):,} characters" if sizes else ""
    return ", ".join(filter(None, (f"{len(result.sources)} pages" if len(result.sources) > 1 else "", text))) or "done"


def _describe_answer(result: ToolResult) -> str:
    head, _, answer = result.text.partition("The user answered: ")
    return answer if answer and not head else "no answer"


def _describe_page(result: ToolResult) -> str:
    """The note that matters most, else the title or address of the page."""
    lines = result.text.split("\n")
    notes = [line.strip("[]") for line in lines if line.startswith(("[saved ", "[screenshot", "[the page showed"))]
    page = next((line.removeprefix("Page: ") for line in lines if line.startswith("Page: ")), "")
    url, _, title = page.partition(" “")
    return notes[0] if notes else title.removesuffix("”") or url or _describe_text(result)


_OUTCOMES: dict[str, Callable[[ToolResult], str]] = {
    "terminal": _describe_command,
    "execute_code": _describe_command,
    "process": _describe_process,
    "read_file": _describe_read,
    "write_file": _describe_change,
    "patch": _describe_change,
    "search_files": _describe_search,
    "todo": _describe_plan,
    "delegate_task": _describe_delegation,
    "clarify": _describe_answer,
    "send_file": lambda result: "attached",
    "tool_search": lambda result: format_count(result.text.count("\n- "), "tool"),
    "web_search": _describe_web_search,
    "web_extract": _describe_web_extract,
    "image_generate": lambda result: format_count(len(result.files), "image") if result.files else "done",
    **dict.fromkeys(
        (
            *("browser_navigate", "browser_snapshot", "browser_click", "browser_type", "browser_press"),
            *("browser_select", "browser_scroll", "browser_back", "browser_screenshot", "browser_download"),
            "browser_upload",
        ),
        _describe_page,
    ),
}
