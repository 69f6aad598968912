"""Completion: commands, what follows them, files; and a menu that fits."""

import pytest
from prompt_toolkit.buffer import CompletionState
from prompt_toolkit.completion import CompleteEvent, Completion
from prompt_toolkit.document import Document

from alipes.cli.terminal.completion import MENU, Words, files, menu
from alipes.cli.terminal.screen_diff import plain, span
from alipes.cli.terminal.styles import make_look

LOOK = make_look("none")


@pytest.fixture
def words(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "sub").mkdir()
    for name in ("song.txt", ".hidden", "sub/inner.py", "two\nlines"):
        (tmp_path / name).touch()
    words = Words()
    words.commands = [("/stop", "end what runs"), ("/status", "tell"), ("/model", "choose")]
    words.arguments["/model"] = lambda: ("far/large", "near/small", "near/large")
    return words


async def offered(words: Words, text: str, *, asked: bool = False) -> list[str]:
    event = CompleteEvent(completion_requested=asked, text_inserted=not asked)
    found = [one async for one in words.get_completions_async(Document(text), event)]
    return [text[: len(text) + one.start_position] + one.text for one in found]


async def test_commands_are_offered_at_the_beginning_only(words):
    assert await offered(words, "/st") == ["/stop", "/status"]
    assert await offered(words, "say /st") == []
    assert await offered(words, "one\n/st") == []


async def test_what_may_follow_a_command_is_offered_the_likely_first(words):
    assert await offered(words, "/model near") == ["/model near/small", "/model near/large"]
    assert await offered(words, "/model LARGE") == ["/model far/large", "/model near/large"]
    assert await offered(words, "/stop ne") == []


async def test_files_are_offered_after_an_at_sign_or_when_asked_for(words):
    assert await offered(words, "see @s") == ["see @sub/", "see @song.txt"]
    assert await offered(words, "see s") == []
    assert await offered(words, "see s", asked=True) == ["see sub/", "see song.txt"]
    assert await offered(words, "see @sub/") == ["see @sub/inner.py"]
    assert await offered(words, "see ./so", asked=True) == ["see ./song.txt"]
    assert await offered(words, "@nothing/here") == []


async def test_hidden_files_are_offered_to_who_begins_with_a_dot(words):
    assert files("") == ["sub/", "song.txt"]
    assert files(".") == [".hidden"]
    assert files("no\0such") == []


def test_the_menu_opens_by_itself_for_commands_and_files(words):
    assert words.asks("/mo") and words.asks("/model x") and words.asks("see @so")
    assert not words.asks("/stop x") and not words.asks("see so") and not words.asks("/etc\nx")


def state(count: int, chosen: int | None = None) -> CompletionState:
    completions = [Completion(f"/name{number}", display_meta="what it does " * 9) for number in range(count)]
    return CompletionState(Document("/"), completions, chosen)


def test_the_menu_fits_and_shows_the_chosen_one():
    assert menu(None, 80, LOOK) == [] and menu(state(0), 80, LOOK) == []
    for columns in (20, 40, 100):
        for chosen in (None, 0, 5, 19):
            rows = menu(state(20, chosen), columns, LOOK)
            assert len(rows) == MENU + 1 and all(span(row) <= columns for row in rows)
            if chosen is not None:
                assert sum(plain(row).startswith(f"› /name{chosen} ") for row in rows) == 1
    assert len(menu(state(3), 80, LOOK)) == 3
