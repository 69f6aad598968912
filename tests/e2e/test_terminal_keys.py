"""Keys of the terminal: stop, go back, suspend, new lines, editor, unknown keys, own keys, Vim."""

import re
import shlex
import shutil
import signal
import sys
from pathlib import Path

import pytest

from tests.e2e.program import Home
from tests.world.environment import require
from tests.world.model_server import Call, Calls, ModelServer, Say, Stall
from tests.world.terminal_process import CTRL_C, ENTER, ESCAPE, TerminalProcess

pytestmark = pytest.mark.deadline(90)
UP, DOWN, SHIFT_TAB = "\x1b[A", "\x1b[B", "\x1b[Z"
CTRL_G, CTRL_O, CTRL_S, CTRL_Z = "\x07", "\x0f", "\x13", "\x1a"
KITTY_REPLY = "\x1b[?0u\x1b[?62;c"
KITTY_ON, KITTY_OFF = b"\x1b[>5u", b"\x1b[<u"


@pytest.fixture
def home(tmp_path):
    return Home(tmp_path / "home")


def configure(home: Home, text: str) -> None:
    home.path.mkdir(mode=0o700)
    (home.path / "config.toml").write_text(text)


async def until_read(terminal: TerminalProcess) -> None:
    """Wait until the program has read everything that was typed."""
    await terminal.until(lambda: not terminal.has_unread_keys())


async def until_idle(terminal: TerminalProcess) -> None:
    """Wait until the turn has ended and the status line shows no activity."""
    await terminal.until(lambda: terminal.shown[-1].startswith("  test/scripted"))


async def test_escape_stops_the_turn_and_keeps_the_text(home):
    async with ModelServer([Stall("Once upon a time"), Say("And now this.")]) as server:
        home.use(server)
        async with TerminalProcess.of(home) as terminal:
            terminal.type("a tale" + ENTER)
            await terminal.until("Once upon a time")
            terminal.type("something else")
            await terminal.until("› something else")
            terminal.type(ESCAPE)
            await terminal.until("· stopped")
            await server.closed_early()
            await terminal.until("› something else")
            terminal.type(ENTER)
            await terminal.until("And now this.")


async def test_escape_when_idle_clears_the_text_into_the_history(home):
    async with TerminalProcess.of(home, "-m", "scripted") as terminal:
        await terminal.until("(from ")
        terminal.type("a thought")
        await terminal.until("› a thought")
        terminal.type(ESCAPE)
        await terminal.until(lambda: "a thought" not in terminal.text)
        terminal.type(UP)
        await terminal.until("› a thought")


async def test_escape_closes_the_menu_and_enter_sends(home):
    """B20. For an Enter that follows at once: test_keyboard.py."""
    async with TerminalProcess.of(home, "-m", "scripted") as terminal:
        await terminal.until("(from ")
        terminal.type("look @")
        await terminal.until("  home/")
        terminal.type(ESCAPE)
        await terminal.until(lambda: "  home/" not in terminal.text)
        terminal.type(ENTER)
        await terminal.until("You said: look @")


async def test_escape_twice_lists_the_messages_and_undoes_the_turns_since_the_chosen_one(home):
    async with ModelServer([Say("Blue."), Say("Green."), Say("Red.")]) as server:
        home.use(server)
        async with TerminalProcess.of(home) as terminal:
            for word, answer in (("a colour", "Blue."), ("another", "Green.")):
                terminal.type(word + ENTER)
                await terminal.until(f"{answer}\n\n›")
                await until_idle(terminal)
            terminal.type(ESCAPE)
            await terminal.until("Press Esc again to go back to a message")
            terminal.type(ESCAPE)
            await terminal.until("Go back to before a message · 2")
            await terminal.until(lambda: "▸   another" in terminal.rows and "    a colour" in terminal.rows)
            terminal.type(DOWN + ENTER)
            await terminal.until("2 turns undone.")
            await terminal.until(lambda: terminal.rows.count("› a colour") == 2)
            terminal.type(", but warm" + ENTER)
            await terminal.until("› a colour, but warm\n\nRed.\n\n›")
    contents = [each["content"] for each in server.bodies[2]["messages"] if each["role"] != "system"]
    assert contents == ["a colour, but warm"]


async def test_escape_leaves_the_list_of_messages_and_nothing_is_undone(home):
    async with ModelServer([Say("Blue."), Say("Red.")]) as server:
        home.use(server)
        async with TerminalProcess.of(home) as terminal:
            terminal.type("a colour" + ENTER)
            await terminal.until("Blue.\n\n›")
            await until_idle(terminal)
            terminal.type(ESCAPE + ESCAPE)
            await terminal.until("Go back to before a message")
            terminal.type(ESCAPE)
            await terminal.until(lambda: "Go back" not in terminal.text)
            terminal.type("another" + ENTER)
            await terminal.until("Red.")
            assert "undone" not in terminal.text
    assert len([each for each in server.bodies[1]["messages"] if each["role"] == "user"]) == 2


@pytest.mark.skipif(shutil.which("git") is None, reason="git is not installed")
@pytest.mark.parametrize(
    ("down", "said", "text", "kept"),
    [(0, "Turn undone.", "one", False), (1, "Turn undone.", "two", False), (2, "Restored a.txt.", "one", True)],
    ids=["both", "conversation", "files"],
)
async def test_going_back_restores_the_conversation_the_files_or_both(home, tmp_path, down, said, text, kept):
    project = tmp_path / "project"
    project.mkdir()
    (project / "a.txt").write_text("one\n")
    write = Call("write_file", {"path": "a.txt", "content": "two\n"})
    async with ModelServer(
        [Calls((Call("read_file", {"path": "a.txt"}),), ""), write, Say("Done."), Say("So.")]
    ) as server:
        home.use(server, workdir=str(project))
        async with TerminalProcess.of(home) as terminal:
            terminal.type("change it" + ENTER)
            await terminal.until("Done.\n\n›")
            await until_idle(terminal)
            terminal.type(ESCAPE + ESCAPE)
            await terminal.until("Go back to before a message")
            terminal.type(ENTER)
            await terminal.until("Conversation and files  undo 1 turn; restore a.txt")
            terminal.type(DOWN * down + ENTER)
            await terminal.until(said)
            assert (project / "a.txt").read_text() == f"{text}\n"
            await terminal.until(lambda: ("› change it" in terminal.shown[-2:]) is not kept)
            if kept:
                terminal.type("go on" + ENTER)
                await terminal.until("So.")
    if kept:
        assert sum(each["role"] == "user" for each in server.bodies[-1]["messages"]) == 2


async def test_ctrl_o_keeps_the_text(home):
    """B6."""
    async with TerminalProcess.of(home, "-m", "scripted") as terminal:
        await terminal.until("(from ")
        terminal.type("a draft" + CTRL_O + " stays")
        await terminal.until("› a draft stays")


@pytest.mark.parametrize(
    "keys",
    [
        "\x1bm",
        "\x1bp",
        "\x1b3",
        "\x1b#",
        "\x1bO",
        "\x1b[57441;5u",
        "\x1b[99;99Z",
        "\x1b[1;10A",
        "\x1b[1;2D\x1b[1;2C",
        "\x1c",
        "\x00",
    ],
    ids=[
        "alt-m",
        "alt-p",
        "alt-3",
        "alt-#",
        "alt-O",
        "kitty",
        "unknown",
        "modified-up",
        "shift-left",
        "ctrl-backslash",
        "ctrl-@",
    ],
)
async def test_keys_without_an_action_leave_the_text_as_it_is(home, keys):
    """B10."""
    async with TerminalProcess.of(home, "-m", "scripted") as terminal:
        await terminal.until("(from ")
        terminal.type("a draft")
        await terminal.until("› a draft")
        terminal.type(keys)
        await until_read(terminal)
        terminal.type(" stays" + ENTER)
        await terminal.until("You said: a draft stays")


async def in_a_shell(terminal: TerminalProcess) -> None:
    await terminal.until(lambda: terminal.shown == ["$"])
    terminal.type(f"{shlex.quote(sys.executable)} -m alipes -m scripted" + ENTER)
    await terminal.until("(from ")


def shell(home: Home, **more: str):
    bash = require("bash", "apt install bash")
    env = home.environ(PS1="$ ", **more)
    return TerminalProcess.running((), env, home.path.parent, start=(bash, "--norc", "--noprofile", "-i"))


async def test_ctrl_z_suspends_and_fg_brings_the_prompt_back(home):
    """B7."""
    async with shell(home) as terminal:
        await in_a_shell(terminal)
        terminal.type("a draft")
        await terminal.until("› a draft")
        terminal.type(CTRL_Z)
        await terminal.until("Stopped")
        await terminal.until(lambda: terminal.shown[-1] == "$")
        assert "› a draft" not in terminal.rows
        terminal.type("echo in the $((40 + 2)) shell" + ENTER)
        await terminal.until("in the 42 shell")
        terminal.type("fg" + ENTER)
        await terminal.until("› a draft")
        assert terminal.is_raw()
        terminal.type(" stays" + ENTER)
        await terminal.until("You said: a draft stays")
        assert terminal.text.count("› a draft") == 1
        terminal.type("/quit" + ENTER)
        await terminal.until(lambda: terminal.shown[-1] == "$")


async def test_without_a_shell_ctrl_z_says_so(home):
    async with TerminalProcess.of(home, "-m", "scripted") as terminal:
        await terminal.until("(from ")
        terminal.type("a draft" + CTRL_Z)
        await terminal.until("There is no shell to return to")
        assert "› a draft" in terminal.rows


async def test_after_a_stop_by_a_signal_the_prompt_works_again(home):
    async with TerminalProcess.of(home, "-m", "scripted") as terminal:
        await terminal.until("(from ")
        terminal.signal(signal.SIGSTOP)
        await terminal.until(lambda: is_stopped(terminal.pid))
        terminal.set_cooked()
        terminal.signal(signal.SIGCONT)
        await terminal.until(terminal.is_raw)
        terminal.type("again" + ENTER)
        await terminal.until("You said: again")


def is_stopped(pid: int) -> bool:
    return Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2].startswith("T")


@pytest.mark.parametrize(
    "newline", ["\x1b[13;2u", "\x1b[27;2;13~", "\x1b\r", "\n"], ids=["kitty", "xterm", "alt", "ctrl-j"]
)
async def test_shift_enter_starts_a_new_line(home, newline):
    async with TerminalProcess.of(home, "-m", "scripted") as terminal:
        await terminal.until("(from ")
        terminal.type("one" + newline + "two")
        await terminal.until("› one\n  two\n")


async def test_the_kitty_protocol_is_used_when_the_terminal_has_it_and_ended_at_exit(home):
    async with TerminalProcess.of(home, "-m", "scripted") as terminal:
        await terminal.until("(from ")
        assert KITTY_ON not in terminal.raw
        terminal.type(KITTY_REPLY)
        await terminal.until(lambda: KITTY_ON in terminal.raw)
        terminal.type("draft\x1b[27u")  # Escape
        await terminal.until(lambda: "draft" not in terminal.text)
        terminal.type("\x1b[1089::99;5u")  # Ctrl-C on a Cyrillic keyboard
        await terminal.until("Press Ctrl-C again to quit")
        assert KITTY_OFF not in terminal.raw
        terminal.type("\x1b[99;5u")
        assert await terminal.ended() == 0
    assert terminal.raw.count(KITTY_ON) == terminal.raw.count(KITTY_OFF) == 1


async def test_the_kitty_protocol_is_ended_by_a_signal_too(home):
    async with TerminalProcess.of(home, "-m", "scripted") as terminal:
        await terminal.until("(from ")
        terminal.type(KITTY_REPLY)
        await terminal.until(lambda: KITTY_ON in terminal.raw)
        terminal.signal(signal.SIGTERM)
        await terminal.ended()
    assert terminal.raw.count(KITTY_OFF) == 1


async def test_the_kitty_protocol_is_off_while_suspended(home):
    async with shell(home) as terminal:
        await in_a_shell(terminal)
        terminal.type(KITTY_REPLY)
        await terminal.until(lambda: KITTY_ON in terminal.raw)
        terminal.type("\x1b[122;5u")  # Ctrl-Z
        await terminal.until("Stopped")
        assert terminal.raw.count(KITTY_OFF) == 1
        terminal.type("fg" + ENTER)
        await terminal.until(lambda: terminal.raw.count(KITTY_ON) == 2)


async def test_a_terminal_without_the_kitty_protocol_is_asked_for_modified_keys(home):
    async with TerminalProcess.of(home, "-m", "scripted") as terminal:
        await terminal.until("(from ")
        terminal.type("\x1b[?62;c")
        await terminal.until(lambda: b"\x1b[>4;1m" in terminal.raw)
        assert KITTY_ON not in terminal.raw
        terminal.type("/quit" + ENTER)
        await terminal.ended()
    assert terminal.raw.count(b"\x1b[>4m") == 1


async def test_ctrl_g_opens_the_editor_with_a_markdown_file(home, tmp_path):
    editor = tmp_path / "editor.py"
    editor.write_text("import sys\nopen(sys.argv[1], 'a').write(' edited in ' + sys.argv[1][-3:])\n")
    command = f"{sys.executable} {editor}"
    async with TerminalProcess.of(home, "-m", "scripted", EDITOR=command, VISUAL="") as terminal:
        await terminal.until("(from ")
        terminal.type("words" + CTRL_G)
        await terminal.until("› words edited in .md")


async def test_ctrl_c_in_the_editor_does_not_reach_the_prompt(home, tmp_path):
    editor = tmp_path / "editor.py"
    editor.write_text(
        "import time\ntry:\n    print('waiting', flush=True)\n    time.sleep(60)\nexcept KeyboardInterrupt:\n    print('left')\n"
    )
    command = f"{sys.executable} {editor}"
    async with TerminalProcess.of(home, "-m", "scripted", EDITOR=command, VISUAL="") as terminal:
        await terminal.until("(from ")
        terminal.type("words" + CTRL_G)
        await terminal.until("waiting")
        terminal.type(CTRL_C)
        await terminal.until("left")
        await terminal.until("› words")
        assert "again to quit" not in terminal.text


async def test_a_question_mark_on_an_empty_line_shows_the_keys_until_something_is_typed(home):
    async with TerminalProcess.of(home, "-m", "scripted", size=(100, 30)) as terminal:
        await terminal.until("(from ")
        terminal.type("?")
        await terminal.until("stop the running turn")
        assert any("Ctrl-O" in row and "show more output" in row for row in terminal.rows)
        assert "change the permission mode" in terminal.text and "search the input history" in terminal.text
        terminal.type("why")
        await terminal.until(lambda: "stop the running turn" not in terminal.text)
        assert "› why" in terminal.rows
        terminal.type("?" + ENTER)
        await terminal.until("You said: why?")


async def test_a_second_question_mark_is_typed(home):
    async with TerminalProcess.of(home, "-m", "scripted") as terminal:
        await terminal.until("(from ")
        terminal.type("?")
        await terminal.until("stop the running turn")
        terminal.type("?" + ENTER)
        await terminal.until("You said: ?")


async def test_the_list_of_keys_fits_into_a_small_window(home):
    async with TerminalProcess.of(home, "-m", "scripted", size=(40, 12)) as terminal:
        await terminal.until("(from")
        terminal.type("?")
        await terminal.until("/keys shows all")
        assert any(row.split() == ["Esc", "stop", "the", "running", "turn"] for row in terminal.rows)
        screen = terminal.screen
        await terminal.until(lambda: screen.display[screen.cursor.y].startswith("›"))


async def test_the_keys_command_lists_the_keys_in_effect(home):
    configure(home, '[keys]\nexpand = "f2"\npick_model = []\n')
    async with TerminalProcess.of(home, "-m", "scripted", size=(100, 50)) as terminal:
        await terminal.until("(from ")
        terminal.type("/keys" + ENTER)
        await terminal.until("Keys of the terminal")
        await terminal.until("Choose a conversation.")
        assert any(row.strip().startswith("F2 ") and "Show more output." in row for row in terminal.rows)
        assert "Choose a model." not in terminal.text


async def test_own_keys_replace_the_usual_ones(home):
    configure(home, '[keys]\nnewline = "enter"\nsend = ["a-enter", "c-x c-s"]\n')
    async with TerminalProcess.of(home, "-m", "scripted") as terminal:
        await terminal.until("(from ")
        terminal.type("one" + ENTER + "two")
        await terminal.until("› one\n  two\n")
        terminal.type("\x18\x13")
        await terminal.until("You said: one")


async def test_wrong_keys_are_reported_with_near_matches_and_conflicts(home):
    configure(home, '[keys]\nexpnd = "c-o"\nstop = "entre"\npick_model = "c-o"\n')
    async with TerminalProcess.of(home, size=(300, 20)) as terminal:
        assert await terminal.ended() != 0
    assert "config.toml:2: unknown setting keys.expnd. Did you mean expand?" in terminal.text
    assert 'config.toml:3: keys.stop = "entre" contains the unknown key "entre"' in terminal.text
    assert "Did you mean enter?" in terminal.text
    assert 'keys.pick_model and keys.expand both use "c-o"' in terminal.text


async def test_vim_keys_edit_the_input_and_show_their_mode(home):
    configure(home, '[terminal]\nediting = "vim"\n')
    async with TerminalProcess.of(home, "-m", "scripted") as terminal:
        await terminal.until("(from ")
        terminal.type("one two three")
        await terminal.until("› one two three")
        terminal.type(ESCAPE)
        await terminal.until("N one two three")
        terminal.type("0dwA four")
        await terminal.until("› two three four")
        terminal.type(ENTER)
        await terminal.until("You said: two three four")


async def test_in_vim_mode_a_second_escape_stops_the_turn(home):
    async with ModelServer([Stall("Once upon a time")]) as server:
        home.use(server)
        config = home.path / "config.toml"
        config.write_text(config.read_text() + '[terminal]\nediting = "vim"\n')
        async with TerminalProcess.of(home) as terminal:
            terminal.type("a tale" + ENTER)
            await terminal.until("Once upon a time")
            terminal.type(ESCAPE)
            await terminal.until(lambda: "N" in terminal.rows)
            terminal.type(ESCAPE)
            await terminal.until("· stopped")


async def test_a_tall_input_tells_how_many_rows_are_hidden(home):
    """B28."""
    async with TerminalProcess.of(home, "-m", "scripted") as terminal:
        await terminal.until("(from ")
        terminal.type("\n".join(f"line {number}" for number in range(1, 31)))
        await terminal.until("  line 30")
        found = re.search(r"^› ↑ (\d+) more\n  line (\d+)\n", terminal.text, re.MULTILINE)
        assert found and int(found[2]) == int(found[1]) + 1
        terminal.type(UP * 29)
        await terminal.until("› line 1\n")
        await terminal.until(f"  ↓ {found[1]} more")


async def test_the_input_is_wrapped_at_words(home):
    async with TerminalProcess.of(home, "-m", "scripted", size=(40, 20)) as terminal:
        await terminal.until("(from")
        terminal.type("The quick brown fox jumps over the lazy dog.")
        await terminal.until("› The quick brown fox jumps over the\n  lazy dog.")


QUESTION = Calls((Call("clarify", {"question": "Which colour?", "choices": ["Red", "Green", "Blue"]}),))


async def test_arrow_keys_choose_the_answer_to_a_question(home):
    async with ModelServer([QUESTION, Say("Painted.")]) as server:
        home.use(server)
        async with TerminalProcess.of(home) as terminal:
            terminal.type("paint" + ENTER)
            await terminal.until("  ▸ 1. Red\n    2. Green\n    3. Blue")
            terminal.type(UP)
            await terminal.until("    1. Red\n    2. Green\n  ▸ 3. Blue")
            terminal.type(UP)
            await terminal.until("  ▸ 2. Green")
            terminal.type(ENTER)
            await terminal.until("answered: Green")
            await terminal.until("Painted.")
            assert terminal.text.count("? Which colour?") == 1
    assert "Green" in server.bodies[1]["messages"][-1]["content"]


async def test_own_words_answer_a_question_with_choices(home):
    async with ModelServer([QUESTION, Say("Painted.")]) as server:
        home.use(server)
        async with TerminalProcess.of(home) as terminal:
            terminal.type("paint" + ENTER)
            await terminal.until("  ▸ 1. Red")
            terminal.type("no colour at all" + ENTER)
            await terminal.until("answered: no colour at all")
            await terminal.until("Painted.")


async def test_ctrl_s_puts_a_draft_aside_and_brings_it_back(home):
    async with ModelServer([Say("Done.")]) as server:
        home.use(server)
        async with TerminalProcess.of(home) as terminal:
            await terminal.until("(from ")
            terminal.type("a long\nplan")
            await terminal.until("› a long\n  plan")
            terminal.type(CTRL_S)
            await terminal.until("· draft (Ctrl-S): a long plan")
            terminal.type("first this" + ENTER)
            await terminal.until("Done.\n")
            await until_idle(terminal)
            assert server.bodies[0]["messages"][-1]["content"] == "first this"
            terminal.type("other")
            await terminal.until("› other")
            terminal.type(CTRL_S)
            await terminal.until(lambda: "· draft (Ctrl-S): other" in terminal.rows and "› a long" in terminal.rows)
            terminal.type(CTRL_C)
            await terminal.until(lambda: "› a long" not in terminal.rows)
            terminal.type(CTRL_S)
            await terminal.until(lambda: "› other" in terminal.rows and "draft (" not in "\n".join(terminal.rows))
