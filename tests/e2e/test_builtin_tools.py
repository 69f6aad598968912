"""The tools vision, clarify, execute_code and todo in the real program."""

import io

import PIL.Image
import pytest

from alipes.cli.ask import EXIT_DENIED
from tests.e2e.program import Home
from tests.world.model_server import Call, Calls, ModelServer, Say
from tests.world.terminal_process import ENTER, TerminalProcess

pytestmark = pytest.mark.deadline(90)


@pytest.fixture
def home(tmp_path):
    return Home(tmp_path / "home")


def use(name, **args):
    return Calls((Call(name, args),), "")


def result(server, number=-1):
    return server.bodies[number]["messages"][-1]["content"]


async def test_a_question_in_the_terminal_is_answered_by_number_or_text(home):
    ask = use("clarify", question="Which one?", choices=["the red", "the blue"])
    plan = [ask, Say("Blue it is."), use("clarify", question="Its name?"), Say("Hello Max.")]
    async with ModelServer(plan) as server:
        home.use(server)
        async with TerminalProcess.of(home) as terminal:
            terminal.type("paint it" + ENTER)
            await terminal.until("? Which one?\n  ▸ 1. the red\n    2. the blue")
            await terminal.until("waiting for your answer")
            terminal.type("2" + ENTER)
            await terminal.until("· answered: the blue")
            await terminal.until("Blue it is.")
            terminal.type("name it" + ENTER)
            await terminal.until("? Its name?")
            terminal.type("Max" + ENTER)
            await terminal.until("Hello Max.")
    assert result(server, 1) == "The user answered: the blue" and result(server, 3) == "The user answered: Max"


async def test_without_a_person_the_question_fails_with_a_clear_result(home):
    async with ModelServer([use("clarify", question="Which one?"), Say("I chose red.")]) as server:
        home.use(server)
        done = await home.run("ask", "paint it")
    assert done.status == 0 and done.out == "I chose red.\n" and result(server).startswith("No answer.")


async def test_tools_called_from_code_need_the_same_approval(home, tmp_path):
    (tmp_path / "notes").write_text("forty-two")
    code = (
        "print(read_file('notes'))\n"
        "try:\n    terminal('git push --force')\nexcept ToolError as error:\n    print('refused:', error)"
    )
    async with ModelServer([use("execute_code", code=code), Say("done")]) as server:
        home.use(server)
        done = await home.run("ask", "-v", "look")
    assert done.status == EXIT_DENIED
    report = result(server)
    assert report.startswith("forty-two\nrefused: Not run") and report.endswith("[exit code 0]")


async def test_dangerous_code_needs_approval(home):
    code = "import shutil; shutil.rmtree('/etc')"
    async with ModelServer([use("execute_code", code=code), Say("not done")]) as server:
        home.use(server)
        await home.run("ask", "clean up")
    assert "nobody is available to approve it" in result(server)


async def test_the_todo_list_is_kept_per_conversation(home):
    todos = [{"id": "1", "content": "look"}, {"id": "2", "content": "act"}]
    plan = [use("todo", todos=todos), Say("noted"), use("todo"), Say("two things")]
    async with ModelServer(plan) as server:
        home.use(server)
        await home.run("ask", "--session", "work", "note it")
        await home.run("ask", "--session", "work", "what is left?")
    assert result(server, 3) == "[ ] 1: look\n[ ] 2: act\n(2 of 2 open)"


async def test_a_picture_is_sent_to_a_vision_model(home, tmp_path):
    file = io.BytesIO()
    PIL.Image.new("RGB", (8, 8), "red").save(file, "PNG")
    (tmp_path / "a.png").write_bytes(file.getvalue())
    look = use("vision_analyze", path=str(tmp_path / "a.png"), question="Which colour?")
    async with ModelServer([look, Say("Red.")]) as server:
        home.use(server)
        done = await home.run("ask", "which colour?")
    assert done.out == "Red.\n" and "image_url" in str(server.bodies[1]["messages"][-1:]) + str(
        server.bodies[1]["messages"][-2:]
    )
