"""What the suite saw, hook by hook and path by path, reported at its end; and the homes its plugins live in."""

from collections.abc import Callable, Iterator

import pytest

from tests.compat.contract import ENDINGS, KEYWORDS, SURFACES, reason_against
from tests.compat.hook_log import HookLog
from tests.compat.plugin_files import write_plugin

SEEN = "hermes hook seen"
BUNDLED = "bundled platform"


@pytest.fixture(autouse=True)
def elsewhere(tmp_path, monkeypatch):
    """What a turn writes without a path is written here."""
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def home(tmp_path):
    (tmp_path / "home").mkdir()
    return tmp_path / "home"


@pytest.fixture
def folder(tmp_path):
    """`folder("name", source)`: a plugin's folder with this code."""
    return lambda name, source, **more: write_plugin(tmp_path / "sources" / name, source, **more)


@pytest.fixture
def hook_log(home):
    return HookLog(home)


@pytest.fixture
def saw(record_property, hook_log) -> Callable[[str, str], None]:
    """Hold the hook_log's page against the contract, and note for the table what was really seen."""

    def note(surface: str, ending: str) -> None:
        for hook in hook_log.check(ending):
            record_property(SEEN, f"{hook} {ending} {surface}")

    return note


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    _write_platforms(terminalreporter)
    seen = set(_seen(terminalreporter))
    if not seen:
        return
    write = terminalreporter.write_line
    terminalreporter.section("hooks of Hermes plugins, as they were seen")
    write("a: in the app   t: at a real terminal   h: on a platform's host   ·: not on this path")
    write(" " * 26 + " ".join(f"{ending:>10}" for ending in ENDINGS))
    for hook in KEYWORDS:
        write(f"{hook:<26}" + " ".join(f"{_mark(hook, ending, seen):>10}" for ending in ENDINGS))
    reasons = {reason_against(hook, ending) for hook in KEYWORDS for ending in ENDINGS} - {""}
    write(f"·: {'; '.join(sorted(reasons))}")


def _write_platforms(reporter: pytest.TerminalReporter) -> None:
    """The table of bundled platform plugins."""
    found = [tuple(value.split()) for value in _values(reporter, BUNDLED)]
    if not found:
        return
    reporter.section("platform plugins of hermes-agent 0.19")
    reporter.write_line(f"{'':<16}{'loads':>8}{'connects':>10}{'carries a message':>20}")
    for name in sorted({name for name, _ in found}):
        marks = ["yes" if (name, step) in found else "-" for step in ("loads", "connects", "carries")]
        reporter.write_line(f"{name:<16}{marks[0]:>8}{marks[1]:>10}{marks[2]:>20}")
    totals = [sum(each == step for _, each in found) for step in ("loads", "connects", "carries")]
    reporter.write_line(f"{'':<16}{totals[0]:>8}{totals[1]:>10}{totals[2]:>20}")


def _seen(reporter: pytest.TerminalReporter) -> Iterator[str]:
    yield from _values(reporter, SEEN)


def _values(reporter: pytest.TerminalReporter, wanted: str) -> Iterator[str]:
    for report in (*reporter.stats.get("passed", ()), *reporter.stats.get("xfailed", ())):
        for name, value in getattr(report, "user_properties", ()):
            if name == wanted:
                yield value


def _mark(hook: str, ending: str, seen: set[str]) -> str:
    if reason_against(hook, ending):
        return "·"
    marks = (surface[0] if f"{hook} {ending} {surface}" in seen else "-" for surface in SURFACES)
    return "".join(marks)
