"""What the recorder wrote down, read again: which hooks, in which order, with which keywords."""

import asyncio
import json
import time
from pathlib import Path
from typing import Any

from msgspec import Struct

from tests.compat.contract import KEYWORDS, STOPS, VERSION, course, expected
from tests.world.environment import LIMIT_S

PLUGINS = Path(__file__).parent / "plugins"
ASKED = ("pre_approval_request", "post_approval_response")


class HookRecord(Struct):
    what: str
    keys: list[str]
    received: dict[str, Any]
    loop: bool
    pid: int


class HookLog:
    """The recorder's book in one home, without what it heard of the turns of subagents themselves.
    `begin` turns to a new page."""

    def __init__(self, home: Path) -> None:
        self._file = home / "seen.jsonl"
        self._page = 0

    def _all(self) -> list[HookRecord]:
        if not self._file.exists():
            return []
        whole = self._file.read_text(encoding="utf-8").rpartition("\n")[0]
        lines = [HookRecord(**json.loads(line)) for line in whole.splitlines()]
        children = {line.received["child_session_id"] for line in lines if line.what == "subagent_start"}
        return [line for line in lines if line.received.get("session_id") not in children]

    @property
    def lines(self) -> list[HookRecord]:
        return self._all()[self._page :]

    @property
    def hooks(self) -> list[HookRecord]:
        return [line for line in self.lines if line.what in KEYWORDS]

    @property
    def names(self) -> list[str]:
        return [line.what for line in self.lines]

    def begin(self) -> None:
        self._page = len(self._all())

    def last(self, what: str) -> dict[str, Any]:
        return next(line.received for line in reversed(self.lines) if line.what == what)

    async def until(self, what: str, times: int = 1, seconds: float = LIMIT_S) -> None:
        """Until it was written down so often on this page. Nobody tells of it: other threads write, too."""
        until = time.monotonic() + seconds
        while self.names.count(what) < times:
            assert time.monotonic() < until, f"no {what} among {self.names}"
            await asyncio.sleep(0.01)

    def check(self, ending: str) -> list[str]:
        """All that the contract says of this path; the hooks that were seen."""
        seen = self.hooks
        for line in seen:
            assert line.received["telemetry_schema_version"] == VERSION, line
            assert set(line.keys) == KEYWORDS[line.what] | {"telemetry_schema_version"}, line.what
        names = [line.what for line in seen]
        assert expected(ending) <= set(names), (ending, expected(ending) - set(names))
        self._in_order(ending, names)
        self._stop_reported(ending, seen)
        self._end_reported(ending, seen)
        return sorted(set(names) & expected(ending))

    def _in_order(self, ending: str, names: list[str]) -> None:
        end = names.index("on_session_end")
        heard = [name for name in names[: end + 1] if name not in (*ASKED, "post_llm_call")]
        seen = [name for at, name in enumerate(heard) if name != "pre_gateway_dispatch" or not at]
        assert tuple(seen) == course(ending), ending
        if ending != "pending":
            asked, answered = (names.index(name) for name in ASKED)
            assert asked < answered < names.index("transform_terminal_output")
        if "on_session_finalize" in names and "on_session_reset" in names:
            assert end < names.index("on_session_finalize") < names.index("on_session_reset")

    def _stop_reported(self, ending: str, seen: list[HookRecord]) -> None:
        reported = [line for line in seen if line.what == "agent_loop_stopped"]
        assert len(reported) == (ending in STOPS), "once, and only if it was stopped"
        for line in reported:
            assert line.loop, "on the loop's own thread"
            assert (line.received["reason"], line.received["invalidation_reason"]) == STOPS[ending]
        if ending in STOPS and ending != "pending":
            cut = next(line.received for line in reversed(seen) if line.what == "post_tool_call")
            assert (cut["tool_name"], cut["status"]) == ("ponder", "cancelled")
            names = self.names
            assert names.index("agent_loop_stopped") < names.index("tool ponder cancelled")

    def _end_reported(self, ending: str, seen: list[HookRecord]) -> None:
        end = next(line.received for line in seen if line.what == "on_session_end")
        answered = ending in ("answered", "resumed")
        assert (end["completed"], end["interrupted"]) == (answered, ending in STOPS), ending
        final = next(line.received for line in seen if line.what == "on_session_finalize")
        assert final["session_id"] == final["old_session_id"] == end["session_id"]
        assert final["reason"] == ("shutdown" if ending == "shutdown" else "reset")
        for reset in (line.received for line in seen if line.what == "on_session_reset"):
            assert reset["old_session_id"] == end["session_id"]
            assert reset["session_id"] == reset["new_session_id"] == final["new_session_id"]
            assert reset["session_id"] != end["session_id"]
