"""Commands in a real terminal: unknown words, aliases, templates, `!command`, going back, setup."""

import subprocess

import pytest

from tests.e2e.program import Home
from tests.world.model_server import ModelServer, Plan, Say, Stall
from tests.world.terminal_process import CTRL_C, ENTER, TerminalProcess

pytestmark = pytest.mark.deadline(90)


@pytest.fixture
def home(tmp_path):
    return Home(tmp_path / "home")


def asked(server: ModelServer) -> list[str]:
    """The last user message of each request to the model."""
    return [body["messages"][-1]["content"] for body in server.bodies]


async def test_help_wraps_descriptions_beside_the_commands(home):
    """B1: at 80 columns no description is broken after two or three words."""
    async with ModelServer([]) as server:
        home.use(server)
        async with TerminalProcess.of(home, size=(80, 100)) as terminal:
            terminal.type("/help" + ENTER)
            await terminal.until("Keys: /keys")
            rows = terminal.rows
    row = next(number for number, row in enumerate(rows) if row.startswith("    /rewind"))
    start = rows[row].index("undo the last turn")
    assert rows[row + 1] == " " * start + rows[row + 1].strip() and rows[row + 1].strip()
    assert any("list subagents and other agents; stop a" in row for row in rows)
    wrapped = [row for row in rows if row.startswith(" " * 24) and row.strip()]
    assert all(len(row) <= 80 for row in rows) and len(wrapped) < 36


async def test_status_of_a_branch_wraps_beside_its_names(home):
    """B1: `/status` of a branch with a long title, at 80 columns."""
    async with ModelServer([Say("fine")]) as server:
        home.use(server)
        async with TerminalProcess.of(home, size=(80, 60)) as terminal:
            terminal.type("a first message with rather many words in it, which become the title" + ENTER)
            await terminal.until("tokens in context")  # the turn is over, not only its answer on the screen
            terminal.type("/branch" + ENTER)
            await terminal.until("Created a branch.")
            terminal.type("/status" + ENTER)
            await terminal.until("busy mode")
            rows = terminal.rows
    row = next(number for number, row in enumerate(rows) if row.startswith("  conversation  "))
    assert len(rows[row]) > 60 and rows[row + 1].startswith(" " * 16) and rows[row + 1][16] != " "


async def test_the_preview_of_a_compaction_says_that_the_window_is_not_known(home):
    """B9: the last count does not stand in for a window that is not known."""
    async with ModelServer([Say("fine")]) as server:
        home.use(server)
        async with TerminalProcess.of(home, size=(100, 40)) as terminal:
            terminal.type("hello" + ENTER)
            await terminal.until("tokens in context")
            terminal.type("/compact --preview" + ENTER)
            await terminal.until("Preview only.")
            assert "tokens; the context window of the model is not known" in terminal.text


async def test_an_unknown_command_is_answered_here(home):
    """B12: it is not sent to the model."""
    async with ModelServer([Say("fine")]) as server:
        home.use(server)
        async with TerminalProcess.of(home) as terminal:
            await terminal.until("Model: ")
            terminal.type("/sesions" + ENTER)
            await terminal.until("Unknown command /sesions. Did you mean /sessions?")
            terminal.type("/etc/hosts has what?" + ENTER)
            await terminal.until("fine")
    assert asked(server) == ["/etc/hosts has what?"]


async def test_the_names_of_other_agents_are_aliases(home):
    """B12: `/clear`, `/compact`, `/cost` and `/exit` do what they do elsewhere."""
    async with ModelServer([Say("fine")]) as server:
        home.use(server)
        async with TerminalProcess.of(home, size=(100, 40)) as terminal:
            terminal.type("hello" + ENTER)
            await terminal.until("fine")
            terminal.type("/cost" + ENTER)
            await terminal.until("this conversation")
            terminal.type("/clear" + ENTER)
            await terminal.until("Started a new conversation.")
            terminal.type("/compact" + ENTER)
            await terminal.until("no model call was measured")
            terminal.type("/exit" + ENTER)
            assert await terminal.ended() == 0
    assert len(server.requests) == 1


async def test_the_output_of_a_shell_command_is_shown_and_given_along(home):
    async with ModelServer([Say("fine")]) as server:
        home.use(server)
        async with TerminalProcess.of(home) as terminal:
            await terminal.until("Model: ")
            terminal.type("!echo a''b; echo c >&2; exit 3" + ENTER + "what was that?" + ENTER)
            await terminal.until("\n  ab\n  c\n  exit code 3 · ")
            await terminal.until("fine")
    (body,) = server.bodies
    sent = "\n".join(str(message["content"]) for message in body["messages"])
    assert "!echo a''b; echo c >&2; exit 3" in sent and "ab\nc\n[exit code 3]" in sent
    assert str(body["messages"][-1]["content"]).endswith("what was that?")


async def test_a_shell_command_is_shown_live_and_stopped_by_ctrl_c(home):
    async with ModelServer([]) as server:
        home.use(server)
        async with TerminalProcess.of(home) as terminal:
            await terminal.until("Model: ")
            terminal.type("!echo begun; sleep 60" + ENTER)
            await terminal.until("\n  begun\n")
            await terminal.until("running a command")
            terminal.type(CTRL_C)
            await terminal.until("killed by the user")
            await terminal.until(lambda: "running a command" not in "\n".join(terminal.rows))


async def test_templates_of_the_home_and_the_project_are_commands(home, tmp_path):
    (home.path / "commands").mkdir(parents=True)
    (home.path / "commands" / "greet.md").write_text("Greet $1 in the city of ${2:-Rome}. !`echo it is 12`\n")
    project = tmp_path / "project"
    (project / ".claude" / "commands" / "git").mkdir(parents=True)
    text = "---\ndescription: Review a file\nallowed-tools: Bash(git:*)\n---\nReview @$1. !`echo no`"
    (project / ".claude" / "commands" / "git" / "review.md").write_text(text)
    async with ModelServer([Say("one"), Say("two")]) as server:
        home.use(server)
        async with TerminalProcess.running((), home.environ(), project, size=(100, 60)) as terminal:
            await terminal.until("Model: ")
            terminal.type('/greet "Ann Lee"' + ENTER)
            await terminal.until('› /greet "Ann Lee"\n\none')
            terminal.type("/git:review a.py" + ENTER)
            await terminal.until("› /git:review a.py\n\ntwo")
            terminal.type("/help git:review" + ENTER)
            await terminal.until("/git:review: Review a file")
    assert asked(server) == ["Greet Ann Lee in the city of Rome. it is 12", "Review @a.py. !`echo no`"]


async def test_rewind_puts_the_message_back_into_the_input(home):
    async with ModelServer([Say("one"), Say("two")]) as server:
        home.use(server)
        async with TerminalProcess.of(home) as terminal:
            terminal.type("hello" + ENTER)
            await terminal.until("tokens in context")
            terminal.type("/rewind" + ENTER)
            await terminal.until("Turn undone.")
            await terminal.until(lambda: any(row == "› hello" for row in terminal.rows[-4:] + terminal.shown[-3:]))
            terminal.type(" again" + ENTER)
            await terminal.until("two")
    assert [m["content"] for m in server.bodies[1]["messages"] if m["role"] == "user"] == ["hello again"]


async def test_effort_reaches_the_model(home):
    async with ModelServer([Say("one"), Say("two")]) as server:
        home.use(server)
        async with TerminalProcess.of(home) as terminal:
            terminal.type("hello" + ENTER)
            await terminal.until("one")
            terminal.type("/effort high" + ENTER)
            await terminal.until("thinks thoroughly")
            terminal.type("hello" + ENTER)
            await terminal.until("two")
    assert "reasoning_effort" not in server.bodies[0] and server.bodies[1]["reasoning_effort"] == "high"


async def test_setup_inside_changes_the_model_and_the_conversation_continues(home):
    async with ModelServer(lambda body: Say("fine"), models=("scripted", "small-model")) as server:
        home.use(server)
        async with TerminalProcess.of(home, size=(100, 50)) as terminal:
            terminal.type("hello" + ENTER)
            await terminal.until("fine")
            terminal.type("/setup" + ENTER)
            await terminal.until("> test ")
            terminal.type(ENTER)
            await terminal.until("Key (Enter for none)")
            terminal.type(ENTER)
            await terminal.until("small-model")
            terminal.type("small")
            await terminal.until("> small-model")
            terminal.type(ENTER)
            await terminal.until("Save?")
            terminal.type(ENTER)
            await terminal.until("· Model: test/small-model (from config.toml)")
            terminal.type("again" + ENTER)
            await terminal.until("› again\n\nfine")
    said = [message["content"] for message in server.bodies[-1]["messages"] if message["role"] == "user"]
    assert server.bodies[-1]["model"] == "small-model" and said == ["hello", "again"]


async def test_a_cancelled_setup_inside_changes_nothing(home):
    async with ModelServer([Say("one")]) as server:
        home.use(server)
        async with TerminalProcess.of(home, size=(100, 50)) as terminal:
            terminal.type("hello" + ENTER)
            await terminal.until("one")
            terminal.type("/setup" + ENTER)
            await terminal.until("Provider:")
            terminal.type(CTRL_C)
            await terminal.until("Nothing changed.")
            terminal.type("/status" + ENTER)
            await terminal.until("busy mode")
            assert "test/scripted" in terminal.text


async def test_a_command_typed_while_a_turn_runs_is_not_queued(home):
    answers = Plan((Say("fine"),), {"stall": (Stall("I am thinking"),)})
    async with ModelServer(answers) as server:
        home.use(server)
        async with TerminalProcess.of(home) as terminal:
            terminal.type("stall" + ENTER)
            await terminal.until("I am thinking")
            terminal.type("/sesions" + ENTER)
            await terminal.until("Did you mean /sessions?")
    assert len(server.requests) == 1


async def test_diff_shows_uncommitted_changes_in_colour(home, tmp_path):
    project = tmp_path / "project"
    project.mkdir()
    (project / "a.txt").write_text("old\nsame\n")
    git = ("git", "-c", "user.name=n", "-c", "user.email=n@example.org")
    for words in (("init", "-q"), ("add", "."), ("commit", "-qm", "first")):
        subprocess.run([*git, *words], cwd=project, env=home.environ(), check=True)
    (project / "a.txt").write_text("new\nsame\n")
    (project / "b.txt").write_text("b")
    (project / "new").mkdir()
    for name in "abc":
        (project / "new" / name).write_text("x")
    async with ModelServer([]) as server:
        home.use(server)
        async with TerminalProcess.running((), home.environ(), project, size=(80, 40)) as terminal:
            terminal.type("/diff" + ENTER)
            await terminal.until("  -old\n  +new\n   same\n  new file: b.txt\n  new file: new/\n\n")
    assert b"48;5;22m+new" in terminal.raw and b"48;5;52m-old" in terminal.raw
