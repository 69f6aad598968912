"""The frame of the screen: the rule, the status line, the window title and notifications."""

import pytest

from tests.e2e.program import Home
from tests.world.model_server import Call, Calls, ModelServer, Say, Stall, Tokens
from tests.world.terminal_process import CTRL_C, CTRL_D, ENTER, TerminalProcess

pytestmark = pytest.mark.deadline(60)


@pytest.fixture
def home(tmp_path):
    return Home(tmp_path / "home")


def configure(home: Home, server: ModelServer, settings: str = "") -> None:
    home.use(server)
    file = home.path / "config.toml"
    facts = '[models."test/scripted"]\nwindow = 64000\nprice_input = 10.0\nprice_output = 100.0\n'
    file.write_text(f"{file.read_text()}{facts}{settings}")


def screen_rows(terminal: TerminalProcess) -> list[str]:
    return [row.rstrip() for row in terminal.screen.display]


async def test_a_rule_as_wide_as_the_screen_is_above_the_input(home):
    async with TerminalProcess.of(home, "-m", "scripted", size=(50, 20)) as terminal:
        await terminal.until("(from ")
        rows = screen_rows(terminal)
        assert rows[rows.index("›") - 1] == "─" * 50
        terminal.resize(70, 20)
        await terminal.until(lambda: "─" * 70 in screen_rows(terminal))
        assert sum(row.startswith("──") for row in screen_rows(terminal)) == 1
        terminal.type(CTRL_D)
        await terminal.ended()
        assert "──" not in "\n".join(terminal.screen.display)


async def test_the_status_line_shows_folder_branch_gauge_and_cost(home):
    async with ModelServer([Say("Yes.", usage=Tokens(30_000, 2_000))]) as server:
        configure(home, server)
        (home.path.parent / ".git").mkdir()
        (home.path.parent / ".git" / "HEAD").write_text("ref: refs/heads/topic\n")
        async with TerminalProcess.of(home) as terminal:
            await terminal.until("  test/scripted · ~ (topic)")
            terminal.type("hi" + ENTER)
            await terminal.until("  test/scripted · ▰▰▰▱▱▱ 50 % of 64k · $0.5000 · ~ (topic)")


async def test_a_running_turn_shows_the_key_that_stops_it(home):
    async with ModelServer([Stall("Once")]) as server:
        configure(home, server)
        async with TerminalProcess.of(home) as terminal:
            terminal.type("go" + ENTER)
            await terminal.until(lambda: any("writing" in row and "esc to stop" in row for row in terminal.rows))
            terminal.type(CTRL_C)
            await terminal.until(lambda: not any("esc to stop" in row for row in terminal.rows))


async def test_below_sixty_columns_the_activity_and_its_key_stay_readable(home):
    async with ModelServer([Stall("Once")]) as server:
        configure(home, server)
        async with TerminalProcess.of(home, size=(32, 20)) as terminal:
            terminal.type("go" + ENTER)
            await terminal.until(lambda: any(row.endswith("esc to stop") for row in terminal.rows))


async def test_the_window_title_shows_the_state_and_is_restored(home):
    script = [Calls((Call("terminal", {"command": "sudo true"}),)), Say("Done.")]
    async with ModelServer(script) as server:
        configure(home, server)
        async with TerminalProcess.of(home) as terminal:
            await terminal.until("(from ")
            name = home.path.parent.name
            await terminal.until(lambda: terminal.screen.title == f"alipes · {name}")
            terminal.type("go" + ENTER)
            await terminal.until(lambda: terminal.screen.title == f"? alipes · {name}")
            await terminal.until(lambda: f"\x1b]2;● alipes · {name}\x1b\\".encode() in terminal.raw)
            terminal.type(CTRL_C)
            await terminal.until(lambda: terminal.screen.title == f"alipes · {name}")
            terminal.type(CTRL_D)
            await terminal.ended()
    assert terminal.raw.index(b"\x1b[22;2t") < terminal.raw.index(b"\x1b]2;") < terminal.raw.rindex(b"\x1b[23;2t")


@pytest.mark.parametrize(
    ("settings", "sequence"),
    [
        ("notify_after = 0", b"\x07"),
        ('notify_after = 0\nnotify = "osc9"', b"\x1b]9;alipes in "),
        ('notify_after = 0\nnotify = "osc777"', b"\x1b]777;notify;alipes;"),
    ],
    ids=["bell", "osc9", "osc777"],
)
async def test_a_finished_turn_is_notified_as_set(home, settings, sequence):
    async with ModelServer([Say("Done.")]) as server:
        configure(home, server, f"[terminal]\n{settings}\n")
        async with TerminalProcess.of(home) as terminal:
            await terminal.until("(from ")
            terminal.type("go" + ENTER)
            await terminal.until(lambda: sequence in terminal.raw)


async def test_a_short_turn_is_not_notified_and_titles_can_be_turned_off(home):
    async with ModelServer([Say("Done.")]) as server:
        configure(home, server, "[terminal]\ntitle = false\n")
        async with TerminalProcess.of(home) as terminal:
            await terminal.until("(from ")
            terminal.type("go" + ENTER)
            await terminal.until("Done.\n\n›")
            terminal.type(CTRL_D)
            await terminal.ended()
    assert b"\x07" not in terminal.raw and b"\x1b]2;" not in terminal.raw and b"t" not in sequences(terminal.raw)


def sequences(raw: bytearray) -> set[bytes]:
    """The final bytes of the control sequences."""
    return {part.lstrip(b"0123456789;?")[:1] for part in bytes(raw).split(b"\x1b[")[1:]}


async def test_the_line_of_the_status_command_is_shown_without_its_escape_sequences(home):
    command = r"""printf '\033[31mfrom %s\nmore' \"$(tr , '\n' | grep model | cut -d'\"' -f4)\""""
    async with ModelServer([Say("Done.")]) as server:
        configure(home, server, f"[terminal]\nstatus_command = '''{command.replace(chr(92) + chr(34), chr(34))}'''\n")
        async with TerminalProcess.of(home, size=(120, 24)) as terminal:
            await terminal.until("(from ")
            terminal.type("go" + ENTER)
            await terminal.until("· ~ · [31mfrom test/scripted")
            assert "more" not in terminal.text


async def test_the_chosen_row_of_the_menu_has_its_own_mark(home):
    async with TerminalProcess.of(home, "-m", "scripted") as terminal:
        await terminal.until("(from ")
        terminal.type("/he")
        await terminal.until("▸ /help")
        assert sum(row.startswith("›") for row in terminal.rows) == 1


async def test_the_context_window_is_taken_from_the_server(home):
    async with ModelServer([Say("Yes.", usage=Tokens(6000, 400))], window=64_000) as server:
        home.use(server)
        async with TerminalProcess.of(home) as terminal:
            terminal.type("hi" + ENTER)
            await terminal.until("10 % of 64k")
