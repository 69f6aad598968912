"""Completion of commands, arguments and files, and the menu."""

import pytest
from prompt_toolkit.buffer import Buffer, CompletionState
from prompt_toolkit.completion import CompleteEvent, Completion
from prompt_toolkit.document import Document

from alipes.cli.terminal.input.completion import (
    MENU_ROWS,
    ArgumentChoice,
    CommandEntry,
    InputCompleter,
    list_files,
    render_menu,
    start_range,
    take_row,
)
from alipes.cli.terminal.input.file_index import FileIndex
from alipes.console.screen_diff import strip_escapes, visible_width
from alipes.console.styles import make_style

LOOK = make_style("none")


@pytest.fixture
def words(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "sub").mkdir()
    for name in ("song.txt", ".hidden", "sub/inner.py", "two\nlines"):
        (tmp_path / name).touch()
    words = InputCompleter()
    words.commands = [("/stop", "stop the turn"), ("/status", "tell"), ("/model", "choose")]
    words.arguments["/model"] = lambda: ("far/large", "near/small", "near/large")
    return words


async def offered(words: InputCompleter, text: str, *, asked: bool = False) -> list[str]:
    event = CompleteEvent(completion_requested=asked, text_inserted=not asked)
    found = [one async for one in words.get_completions_async(Document(text), event)]
    return [text[: len(text) + one.start_position] + one.text for one in found]


async def test_commands_are_offered_only_at_the_start(words):
    assert await offered(words, "/st") == ["/stop", "/status"]
    assert await offered(words, "say /st") == []
    assert await offered(words, "one\n/st") == []


async def test_arguments_of_a_command_are_offered_prefix_matches_first(words):
    assert await offered(words, "/model near") == ["/model near/small", "/model near/large"]
    assert await offered(words, "/model LARGE") == ["/model far/large", "/model near/large"]
    assert await offered(words, "/stop ne") == []


async def test_files_are_offered_after_an_at_sign_or_on_tab(words):
    assert await offered(words, "see @s") == ["see @sub/", "see @song.txt "]
    assert await offered(words, "see s") == []
    assert await offered(words, "see s", asked=True) == ["see sub/", "see song.txt"]
    assert await offered(words, "see @sub/") == ["see @sub/inner.py "]
    assert await offered(words, "see ./so", asked=True) == ["see ./song.txt"]
    assert await offered(words, "@nothing/here") == []
    assert await offered(words, "mail me@so") == []


async def test_files_of_the_tree_are_found_and_blanks_are_quoted(words, tmp_path):
    (tmp_path / "sub" / "my notes.md").touch()
    words.files = FileIndex(str(tmp_path))
    assert await offered(words, "see @inpy") == ["see @sub/inner.py "]
    assert await offered(words, "see @notes") == ['see @"sub/my notes.md" ']
    assert await offered(words, 'see @"sub/my no') == ['see @"sub/my notes.md" ']
    assert await offered(words, "see @./so") == ["see @./song.txt "]


async def test_loaded_arguments_are_offered_and_never_files(words):
    async def load() -> list[ArgumentChoice]:
        return [ArgumentChoice("3f2a91", "Fix the parser", "2 h ago"), ArgumentChoice("77aa00", "Song book", "")]

    words.loaded_arguments["/resume"] = load
    assert await offered(words, "/resume ", asked=True) == ["/resume 3f2a91", "/resume 77aa00"]
    assert await offered(words, "/resume parser") == ["/resume 3f2a91"]
    assert await offered(words, "/resume song.txt", asked=True) == []
    assert words.opens_menu("/resume x")


async def test_commands_are_found_by_alias_and_by_letters(words):
    words.commands = [CommandEntry("/quit", "leave", aliases=("/exit",)), CommandEntry("/compress", "summarise")]
    assert await offered(words, "/exi") == ["/exit"]
    assert await offered(words, "/cprs") == ["/compress"]
    assert await offered(words, "/") == ["/quit", "/compress"]


def typed(words: InputCompleter, text: str, rows: list[Completion], chosen: int | None = None) -> tuple[bool, str]:
    """What Enter does with an open menu: whether the input is sent, and the input then."""
    buffer = Buffer(completer=words, document=Document(text))
    buffer.complete_state = CompletionState(buffer.document, rows)
    if chosen is not None:
        buffer.go_to_completion(chosen)
    return take_row(buffer, words), buffer.text


@pytest.mark.parametrize("row", ["@src/app.py ", '@"my file.py" '])
def test_a_colon_after_a_completed_file_starts_a_line_range(words, row):
    buffer = Buffer(completer=words, document=Document("see @ap"))
    buffer.complete_state = CompletionState(buffer.document, [Completion(row, -3)])
    assert not words.follows_file(buffer) and not take_row(buffer, words)
    assert buffer.text == f"see {row}" and words.follows_file(buffer)
    start_range(buffer)
    assert buffer.text == f"see {row.rstrip()}:" and not words.follows_file(buffer)


def test_a_colon_after_a_typed_file_and_a_blank_is_text(words):
    buffer = Buffer(completer=words, document=Document("see @app.py "))
    assert not words.follows_file(buffer)


def test_enter_takes_the_row_and_runs_a_command_that_needs_nothing(words):
    words.commands = [CommandEntry("/model"), CommandEntry("/mode"), CommandEntry("/steer", needs_argument=True)]
    commands = [Completion("/model", -4), Completion("/mode", -4)]
    assert typed(words, "/mod", commands) == (True, "/model")
    assert typed(words, "/mod", commands, chosen=1) == (True, "/mode")
    assert typed(words, "/mode", [Completion("/model", -5), Completion("/mode", -5)]) == (True, "/mode")
    assert typed(words, "/ste", [Completion("/steer", -4)]) == (False, "/steer ")
    assert typed(words, "/steer", [Completion("/steer", -6)]) == (True, "/steer")
    assert typed(words, "/model la", [Completion("near/large", -2)]) == (True, "/model near/large")


def test_enter_takes_a_file_and_does_not_send(words):
    assert typed(words, "see @so", [Completion("@song.txt ", -3)]) == (False, "see @song.txt ")
    assert typed(words, "see @song.txt", [Completion("@song.txt ", -9)]) == (True, "see @song.txt")
    assert typed(words, "see", []) == (True, "see")


async def test_hidden_files_are_offered_after_a_dot(words):
    assert list_files("") == ["sub/", "song.txt"]
    assert list_files(".") == [".hidden"]
    assert list_files("no\0such") == []


def test_the_menu_opens_by_itself_for_commands_and_files(words):
    assert words.opens_menu("/mo") and words.opens_menu("/model x") and words.opens_menu("see @so")
    assert not words.opens_menu("/stop x") and not words.opens_menu("see so") and not words.opens_menu("/etc\nx")


def state(count: int, chosen: int | None = None) -> CompletionState:
    completions = [Completion(f"/name{number}", display_meta="what it does " * 9) for number in range(count)]
    return CompletionState(Document("/"), completions, chosen)


def test_the_menu_fits_and_shows_the_chosen_one():
    assert render_menu(None, 80, LOOK) == [] and render_menu(state(0), 80, LOOK) == []
    for columns in (20, 40, 100):
        for chosen in (None, 0, 5, 19):
            rows = render_menu(state(20, chosen), columns, LOOK)
            assert len(rows) == MENU_ROWS + 1 and all(visible_width(row) <= columns for row in rows)
            if chosen is not None:
                assert sum(strip_escapes(row).startswith(f"▸ /name{chosen} ") for row in rows) == 1
    assert len(render_menu(state(3), 80, LOOK)) == 3
