"""Tools that look, ask, compute and keep a list, in the real program."""

import io

import PIL.Image
import pytest

from tests.e2e.program import Home
from tests.world.glass import ENTER, Glass
from tests.world.model_server import Call, Calls, ModelServer, Say

pytestmark = pytest.mark.deadline(90)


@pytest.fixture
def home(tmp_path):
    return Home(tmp_path / "home")


def use(name, **args):
    return Calls((Call(name, args),), "")


def result(server, number=-1):
    return server.bodies[number]["messages"][-1]["content"]


async def test_a_question_in_the_terminal_is_answered_by_its_number_or_in_words(home):
    ask = use("clarify", question="Which one?", choices=["the red", "the blue"])
    plan = [ask, Say("Blue it is."), use("clarify", question="Its name?"), Say("Hello Max.")]
    async with ModelServer(plan) as server:
        home.use(server)
        async with Glass.of(home) as glass:
            glass.type("paint it" + ENTER)
            await glass.until("? Which one?\n    1. the red\n    2. the blue")
            await glass.until("waiting for your answer")
            glass.type("2" + ENTER)
            await glass.until("· answered: the blue")
            await glass.until("Blue it is.")
            glass.type("name it" + ENTER)
            await glass.until("? Its name?")
            glass.type("Max" + ENTER)
            await glass.until("Hello Max.")
    assert (
        result(server, 1) == "The person answers: the blue" and result(server, 3) == "The person answers: Max"
    )


async def test_where_nobody_can_answer_the_model_is_told_so(home):
    async with ModelServer([use("clarify", question="Which one?"), Say("I chose red.")]) as server:
        home.use(server)
        done = await home.run("ask", "paint it")
    assert done.status == 0 and done.out == "I chose red.\n" and result(server).startswith("No answer came")


async def test_code_uses_tools_past_the_same_gates(home, tmp_path):
    (tmp_path / "notes").write_text("forty-two")
    code = (
        "print(read_file('notes'))\n"
        "try:\n    terminal('git push --force')\nexcept ToolError as error:\n    print('refused:', error)"
    )
    async with ModelServer([use("execute_code", code=code), Say("done")]) as server:
        home.use(server)
        done = await home.run("ask", "-v", "look")
    assert done.status == 0
    told = result(server)
    assert told.startswith("forty-two\nrefused: Not run") and told.endswith("[exit code 0]")


async def test_code_that_is_dangerous_itself_is_asked_about(home):
    code = "import shutil; shutil.rmtree('/etc')"
    async with ModelServer([use("execute_code", code=code), Say("not done")]) as server:
        home.use(server)
        await home.run("ask", "clean up")
    assert "nobody is here to allow it" in result(server)


async def test_a_list_is_kept_for_the_conversation(home):
    todos = [{"id": "1", "content": "look"}, {"id": "2", "content": "act"}]
    plan = [use("todo", todos=todos), Say("noted"), use("todo"), Say("two things")]
    async with ModelServer(plan) as server:
        home.use(server)
        await home.run("ask", "--session", "work", "note it")
        await home.run("ask", "--session", "work", "what is left?")
    assert result(server, 3) == "[ ] 1: look\n[ ] 2: act\n(2 of 2 open)"


async def test_a_picture_is_shown_to_a_model_that_sees(home, tmp_path):
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
