"""Lists of models and conversations, completion with Enter, files and pictures in messages."""

import base64

import pytest

from tests.e2e.program import Home
from tests.world.model_server import ModelServer, Say
from tests.world.pictures import PNG
from tests.world.terminal_process import CTRL_D, CTRL_L, ENTER, ESCAPE, TerminalProcess

pytestmark = pytest.mark.deadline(90)
DOWN, TAB, CTRL_R, CTRL_U, CTRL_V = "\x1b[B", "\t", "\x12", "\x15", "\x16"


@pytest.fixture
def home(tmp_path):
    return Home(tmp_path / "home")


def asked(server: ModelServer) -> list:
    return [body["messages"][-1]["content"] for body in server.bodies]


async def test_enter_on_an_open_menu_runs_the_chosen_command(home):
    """B11."""
    async with TerminalProcess.of(home, "-m", "scripted") as terminal:
        await terminal.until("(from ")
        terminal.type("/stat")
        await terminal.until("▸ /status")
        terminal.type(ENTER)
        await terminal.until("nothing is running")
        assert "› /status" in terminal.rows and "You said" not in terminal.text


async def test_enter_completes_a_command_that_needs_an_argument(home):
    """B11."""
    async with TerminalProcess.of(home, "-m", "scripted") as terminal:
        await terminal.until("(from ")
        terminal.type("/stee")
        await terminal.until("▸ /steer")
        terminal.type(ENTER + "left")
        await terminal.until("› /steer left")
        terminal.type(ENTER)
        await terminal.until("You said: left")


async def test_resume_completes_conversations_not_files(home, tmp_path):
    """B8."""
    (tmp_path / "a file.txt").touch()
    async with TerminalProcess.of(home, "-m", "scripted") as terminal:
        await terminal.until("(from ")
        terminal.type("plant a tree" + ENTER)
        await terminal.until("You said: plant a tree")
        terminal.type("/new" + ENTER)
        await terminal.until("Started a new conversation.")
        terminal.type("paint a door" + ENTER)
        await terminal.until("You said: paint a door")
        terminal.type("/resume ")
        await terminal.until("▸ paint a door")
        assert any(row.startswith("  plant a tree ") for row in terminal.rows)
        terminal.type(TAB)
        await terminal.until(lambda: any(row.startswith("› /resume ") for row in terminal.rows))
        assert "a file.txt" not in terminal.text
        terminal.type(CTRL_U + "/resume tree")
        await terminal.until("▸ plant a tree")
        terminal.type(ENTER)
        await terminal.until("Resumed “plant a tree”")


async def test_resume_takes_the_start_of_a_title(home):
    async with TerminalProcess.of(home, "-m", "scripted") as terminal:
        await terminal.until("(from ")
        terminal.type("Documents of the parser" + ENTER)
        await terminal.until("You said: Documents")
        terminal.type("/new" + ENTER)
        await terminal.until("Started a new conversation.")
        terminal.type("/resume DOC")
        await terminal.until("▸ Documents of the parser")
        terminal.type(ESCAPE)
        await terminal.until(lambda: not any(row.startswith("▸") for row in terminal.rows))
        terminal.type(ENTER)
        await terminal.until("Resumed “Documents of the parser”")


async def test_model_lists_what_the_server_offers_and_no_test_models(home):
    """B24."""
    async with ModelServer([Say("Large.")]) as server:
        home.use(server)
        async with TerminalProcess.of(home) as terminal:
            await terminal.until("(from ")
            terminal.type("/model" + ENTER)
            await terminal.until("▸ * test/scripted")
            await terminal.until("    test/scripted-large")
            assert "scripted/echo" not in terminal.text
            terminal.type("large")
            await terminal.until(lambda: "▸   test/scripted-large" in terminal.rows)
            terminal.type(ENTER)
            await terminal.until("Switched to test/scripted-large")
            terminal.type("hello" + ENTER)
            await terminal.until("Large.")
    assert [body["model"] for body in server.bodies] == ["scripted-large"]


async def test_ctrl_l_opens_the_list_of_models_and_keeps_the_input(home):
    async with ModelServer([Say("Kept.")]) as server:
        home.use(server)
        async with TerminalProcess.of(home) as terminal:
            await terminal.until("(from ")
            terminal.type("half a question")
            await terminal.until("› half a question")
            terminal.type(CTRL_L)
            await terminal.until("    test/scripted-large")
            terminal.type(DOWN + "large" + ENTER)
            await terminal.until("Switched to test/scripted-large")
            terminal.type(" and the rest" + ENTER)
            await terminal.until("Kept.")
    assert asked(server) == ["half a question and the rest"]


async def test_escape_closes_the_list_and_the_input_is_free(home):
    async with TerminalProcess.of(home, "-m", "scripted") as terminal:
        await terminal.until("(from ")
        terminal.type("/model" + ENTER)
        await terminal.until("enter choose")
        terminal.type(ESCAPE)
        await terminal.until(lambda: "›" in terminal.rows and "  enter choose · esc cancel" not in terminal.rows)
        terminal.type("hello" + ENTER)
        await terminal.until("You said: hello")


async def test_a_conversation_is_previewed_renamed_deleted_and_chosen(home):
    async with TerminalProcess.of(home, "-m", "scripted") as terminal:
        await terminal.until("(from ")
        for count, text in enumerate(("plant a tree", "paint a door", "cook a soup"), 1):
            terminal.type(text + ENTER)
            await terminal.until(f"You said: {text}")
            terminal.type("/new" + ENTER)
            await terminal.until(lambda count=count: terminal.text.count("Started a new conversation.") == count)
        terminal.type("/resume" + ENTER)
        await terminal.until("  │ you: cook a soup")
        assert "  This folder" in terminal.rows
        terminal.type(DOWN)
        await terminal.until("  │ you: paint a door")
        terminal.type(CTRL_R)
        await terminal.until("› New title: paint a door")
        terminal.type(CTRL_U + "Blue door" + ENTER)
        await terminal.until(lambda: any(row.startswith("▸   Blue door ") for row in terminal.rows))
        terminal.type(DOWN)
        await terminal.until(lambda: any(row.startswith("▸   plant a tree ") for row in terminal.rows))
        terminal.type(CTRL_D)
        await terminal.until("Delete “plant a tree”? [y] yes [n] no")
        terminal.type("y")
        await terminal.until(lambda: "Conversations · 2" in terminal.rows)
        terminal.type("blue" + ENTER)
        await terminal.until("Resumed “Blue door”")
    listed = await home.run("sessions", "list")
    assert "Blue door" in listed.out and "cook a soup" in listed.out and "plant a tree" not in listed.out


async def test_a_file_of_the_tree_is_found_by_its_letters_and_attached(home, tmp_path):
    (tmp_path / ".git").mkdir()
    (tmp_path / ".gitignore").write_text("built/\n")
    for name in ("built/app_main.py", "src/deep/app_main.py"):
        (tmp_path / name).parent.mkdir(parents=True)
        (tmp_path / name).write_text("".join(f"line {n}\n" for n in range(1, 9)))
    async with ModelServer([Say("Seen.")]) as server:
        home.use(server)
        async with TerminalProcess.of(home) as terminal:
            await terminal.until("(from ")
            terminal.type("see @apmain")
            await terminal.until("▸ src/deep/app_main.py")
            assert "built/" not in terminal.text
            terminal.type(ENTER + "and @src/deep/app_main.py:2-3 ")
            await terminal.until("› see @src/deep/app_main.py and @src/deep/app_main.py:2-3")
            assert server.requests == []
            terminal.type(ENTER)
            await terminal.until("Seen.")
            assert "  [attached src/deep/app_main.py, 8 lines]" in terminal.rows
            assert "  [attached src/deep/app_main.py, lines 2-3]" in terminal.rows
            assert "line 5" not in terminal.text
    (text,) = asked(server)
    assert "line 8\n</attachment>" in text and text.endswith("line 2\nline 3\n</attachment>")


async def test_a_colon_after_a_completed_file_names_its_lines(home, tmp_path):
    (tmp_path / "app_main.py").write_text("".join(f"line {n}\n" for n in range(1, 9)))
    async with ModelServer([Say("Seen.")]) as server:
        home.use(server)
        async with TerminalProcess.of(home) as terminal:
            await terminal.until("(from ")
            terminal.type("see @apmain")
            await terminal.until("▸ app_main.py")
            terminal.type(ENTER + ":2-3")
            await terminal.until("› see @app_main.py:2-3")
            terminal.type(ENTER)
            await terminal.until("Seen.")
            assert "  [attached app_main.py, lines 2-3]" in terminal.rows


async def test_a_secret_file_is_not_attached(home, tmp_path):
    (tmp_path / ".env").write_text("TOKEN=abc")
    async with ModelServer([Say("No.")]) as server:
        home.use(server)
        async with TerminalProcess.of(home) as terminal:
            await terminal.until("(from ")
            terminal.type("see @.env please" + ENTER)
            await terminal.until("No.")
            assert "@.env was not attached: it holds secrets." in terminal.text
    assert asked(server) == ["see @.env please"]


@pytest.mark.parametrize("form", ["{}", "'{}'", "file://{}"])
async def test_a_dropped_picture_reaches_the_model(home, tmp_path, form):
    (tmp_path / "photo.png").write_bytes(PNG)
    async with ModelServer([Say("A dot.")]) as server:
        home.use(server)
        with (home.path / "config.toml").open("a") as file:
            file.write('[models."test/scripted"]\nvision = true\n')
        async with TerminalProcess.of(home) as terminal:
            await terminal.until("(from ")
            terminal.type(f"\x1b[200~{form.format(tmp_path / 'photo.png')}\x1b[201~what is it?")
            await terminal.until("what is it?")
            terminal.type(ENTER)
            await terminal.until("A dot.")
    assert base64.b64encode(PNG).decode() in str(asked(server)[0])


async def test_ctrl_v_takes_the_picture_in_the_clipboard(home, tmp_path):
    (tmp_path / "photo.png").write_bytes(PNG)
    program = tmp_path / "bin" / "wl-paste"
    program.parent.mkdir()
    program.write_text(f'#!/bin/sh\nexec cat "{tmp_path}/photo.png"\n')
    program.chmod(0o755)
    path = f"{program.parent}:{home.environ()['PATH']}"
    async with TerminalProcess.of(
        home, "-m", "scripted", PATH=path, WAYLAND_DISPLAY="wayland-0", size=(200, 24)
    ) as terminal:
        await terminal.until("(from ")
        terminal.type(CTRL_V)
        await terminal.until("› [picture 1]")
        terminal.type("what is it?" + ENTER)
        await terminal.until("› [picture 1] what is it?")
    assert [file.read_bytes() for file in (home.path / "pictures").iterdir()] == [PNG]


async def test_ask_attaches_files_of_the_question_but_not_of_piped_text(home, tmp_path):
    (tmp_path / "a.txt").write_text("alpha")
    (tmp_path / "b.txt").write_text("beta")
    async with ModelServer([Say("Yes.")]) as server:
        home.use(server)
        done = await home.run("ask", "read @a.txt", stdin=b"and @b.txt")
    assert done.status == 0
    (text,) = asked(server)
    assert text.endswith('<attachment path="a.txt">\nalpha\n</attachment>') and "beta" not in text


async def test_config_lists_settings_with_their_origin_and_edits_them(home):
    async with ModelServer([Say("Done.")]) as server:
        home.use(server)
        async with TerminalProcess.of(home) as terminal:
            await terminal.until("(from ")
            terminal.type("/config" + ENTER)
            await terminal.until("Settings · ")
            terminal.type(CTRL_U + "terminal.title")
            await terminal.until("▸   terminal.title  true · default")
            await terminal.until("Whether the window title shows")
            terminal.type(ENTER)
            await terminal.until("› terminal.title = true")
            terminal.type(CTRL_U + "perhaps" + ENTER)
            await terminal.until("must be")
            terminal.type(ENTER)
            await terminal.until("› terminal.title = true")
            terminal.type(CTRL_U + "false" + ENTER)
            await terminal.until(lambda: any(row.startswith("▸ * terminal.title  false · ") for row in terminal.rows))
            terminal.type(ESCAPE)
            await terminal.until("Changed: terminal.title. It takes effect at the next start.")
            assert (await home.run("config", "get", "terminal.title")).out == "false\n"
            terminal.type("/config terminal.title" + ENTER)
            await terminal.until("terminal.title = false")
            terminal.type("/config" + ENTER)
            await terminal.until("Settings · ")
            terminal.type("terminal.title")
            await terminal.until("▸ * terminal.title")
            terminal.type(CTRL_D)
            await terminal.until("▸   terminal.title  true · default")
            terminal.type(ESCAPE)
            await terminal.until(lambda: "Settings ·" not in "\n".join(terminal.rows))
    assert "title" not in (home.path / "config.toml").read_text()


async def test_a_changed_setting_of_the_session_is_used_at_once(home):
    async with ModelServer([Say("Done.")]) as server:
        home.use(server)
        async with TerminalProcess.of(home) as terminal:
            await terminal.until("(from ")
            terminal.type("/config" + ENTER)
            await terminal.until("Settings · ")
            terminal.type("approvals.mode")
            await terminal.until("▸   approvals.mode")
            terminal.type(ENTER)
            await terminal.until("approvals.mode = ask")
            terminal.type(CTRL_U + "edits" + ENTER + ESCAPE)
            await terminal.until("Changed: approvals.mode.\n")
            await terminal.until("edits mode")


async def test_a_theme_is_chosen_from_a_list_and_used_at_once(home):
    async with ModelServer([Say("Done.")]) as server:
        home.use(server)
        async with TerminalProcess.of(home) as terminal:
            await terminal.until("(from ")
            terminal.type("/theme" + ENTER)
            await terminal.until("▸ * auto")
            terminal.type(DOWN + DOWN + ENTER)
            await terminal.until("Theme: light.")
            await terminal.until(lambda: _colour_of(terminal, "›") == "cyan")
            terminal.type("/theme dark" + ENTER)
            await terminal.until("Theme: dark.")
            await terminal.until(lambda: _colour_of(terminal, "›") == "brightcyan")
            terminal.type("/theme pink" + ENTER)
            await terminal.until("terminal.theme")
    assert (await home.run("config", "get", "terminal.theme")).out == "dark\n"


def _colour_of(terminal: TerminalProcess, prompt: str) -> str:
    """The colour of the last prompt on the screen."""
    row = max(y for y, shown in enumerate(terminal.screen.display) if shown.startswith(prompt))
    return terminal.screen.buffer[row][0].fg
