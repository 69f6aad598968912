"""What fills the context window, side questions, reviews, and names of commands that other agents have."""

import pytest

from tests.e2e.program import Home
from tests.e2e.test_terminal_approvals import run
from tests.world.model_server import ModelServer, Say
from tests.world.terminal_process import ENTER, TerminalProcess

pytestmark = pytest.mark.deadline(90)


@pytest.fixture
def home(tmp_path):
    return Home(tmp_path / "home")


async def test_context_side_questions_and_reviews(home):
    script = [run("seq 1 300"), Say("Counted."), Say("It is 300."), Say("Fine."), Say("No findings.")]
    async with ModelServer(script) as server:
        home.use(server)
        async with TerminalProcess.of(home, size=(80, 50)) as terminal:
            terminal.type("/context" + ENTER)
            await terminal.until("This conversation is empty.")
            terminal.type("count" + ENTER)
            await terminal.until("Counted.\n\n›")
            terminal.type("/context" + ENTER)
            for source in ("system prompt", "tools", "messages", "tool results", "together"):
                await terminal.until(f"  {source} ")
            terminal.type("/btw how far did you count?" + ENTER)
            await terminal.until("  It is 300.")
            terminal.type("go on" + ENTER)
            await terminal.until("Fine.\n\n›")
            terminal.type("/review main" + ENTER)
            await terminal.until("No findings.")
    aside, after, review = server.bodies[2]["messages"], server.bodies[3]["messages"], server.bodies[4]["messages"]
    assert "how far did you count?" in aside[-1]["content"] and "count" in [each["content"] for each in aside]
    assert not any("how far" in str(each["content"]) for each in after)
    assert "Review 'main'" in review[-1]["content"]


async def test_names_of_other_agents_do_the_same_or_say_what_does(home):
    async with TerminalProcess.of(home, "-m", "scripted") as terminal:
        await terminal.until("Using scripted/echo")
        for name, words in {"plan": "plan: only reads", "ps": "No background", "theme": "Theme · 3"}.items():
            terminal.type(f"/{name}" + ENTER)
            await terminal.until(words)
        terminal.type("\x1b")
        await terminal.until(lambda: "Theme · 3" not in terminal.text)
        terminal.type("/mod")
        await terminal.until("/model")
        terminal.type(ENTER)
        await terminal.until("enter choose · esc cancel")
