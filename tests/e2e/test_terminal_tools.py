"""Tool calls in a real terminal: names, outcomes, progress, plans, subagents, jobs, Ctrl-O and resumed turns."""

import re
import signal

import pytest

from tests.e2e.program import Home
from tests.world.model_server import Call, Calls, ModelServer, Say
from tests.world.terminal_process import ENTER, ESCAPE, TerminalProcess

pytestmark = pytest.mark.deadline(90)
CTRL_O = "\x0f"


@pytest.fixture
def home(tmp_path):
    return Home(tmp_path / "home")


def call(name: str, **args: object) -> Calls:
    return Calls((Call(name, args),))


def counts_jobs(terminal: TerminalProcess) -> bool:
    """Whether the status line counts one running job."""
    return re.search(r"\b1 (job|in background)", terminal.shown[-1]) is not None


def plan(*states: str) -> Calls:
    names = ("Read the code", "Change it", "Test it")
    items = [{"id": str(n), "content": names[n], "status": state} for n, state in enumerate(states)]
    return call("todo", todos=items)


async def test_the_plan_of_the_model_is_a_checklist_that_ticks_off(home, tmp_path):
    """B2"""
    wait = call("terminal", command=f"until test -e {tmp_path}/go; do sleep 0.05; done")
    script = [
        plan("completed", "in_progress", "pending"),
        wait,
        plan("completed", "completed", "completed"),
        Say("Finished."),
    ]
    async with ModelServer(script) as server:
        home.use(server)
        async with TerminalProcess.of(home) as terminal:
            terminal.type("work" + ENTER)
            await terminal.until("• Plan  1 of 3 done\n  ✓ Read the code\n  • Change it\n  ☐ Test it")
            await terminal.until("• Run until test")
            (tmp_path / "go").touch()
            await terminal.until("Finished.")
            done = "✓ Plan  3 of 3 done\n  ✓ Read the code\n  ✓ Change it\n  ✓ Test it\n\nFinished."
            assert done in terminal.text and terminal.text.count("Plan") == 1
            assert "todos=" not in terminal.text


@pytest.mark.parametrize("form", [r"\rDownloading %d%%", r"Downloading %d%%\r"], ids=["before", "after"])
async def test_a_progress_bar_moves_while_the_command_runs(home, tmp_path, form):
    """B5"""
    step = f"until test -e {tmp_path}/step$i; do sleep 0.05; done"
    command = f"for i in 5 15 95; do printf '{form}' $i; {step}; done; echo; echo over"
    async with ModelServer([call("terminal", command=command), Say("It ran.")]) as server:
        home.use(server)
        async with TerminalProcess.of(home, size=(100, 24)) as terminal:
            terminal.type("run" + ENTER)
            for number in (5, 15, 95):
                await terminal.until(lambda number=number: f"  │ Downloading {number}%" in terminal.rows)
                assert terminal.text.count("Downloading") == 2  # the command and one row
                (tmp_path / f"step{number}").touch()
            await terminal.until("It ran.")


async def test_the_number_of_omitted_lines_is_true(home):
    """B15"""
    async with ModelServer([call("terminal", command="seq 1 200000"), Say("It ran.")]) as server:
        home.use(server)
        async with TerminalProcess.of(home) as terminal:
            terminal.type("run" + ENTER)
            await terminal.until("It ran.")
            assert "✓ Run seq 1 200000  200,000 lines" in terminal.text
            assert "  │ … 199,997 more lines (Ctrl-O)\n  │ 199998\n  │ 199999\n  │ 200000\n" in terminal.text


async def test_every_tool_shows_its_outcome(home, tmp_path):
    """B23"""
    (tmp_path / "app.py").write_text("def one():\n    pass\n\n\ndef two():\n    pass\n")
    calls = (
        Call("read_file", {"path": "app.py"}),
        Call("search_files", {"pattern": "def "}),
        Call("search_files", {"pattern": "*.py", "target": "files"}),
        Call("execute_code", {"code": "print(1)\nprint(2)"}),
        Call("process", {"action": "list"}),
        Call("write_file", {"path": "new.txt", "content": "x\n"}),
    )
    async with ModelServer([Calls(calls), Say("All done.")]) as server:
        home.use(server)
        async with TerminalProcess.of(home) as terminal:
            terminal.type("look" + ENTER)
            await terminal.until("All done.")
            shown = re.sub(r" · [\d.]+ s\n", "\n", terminal.text)  # the time of slow calls
            assert "✓ Read app.py  6 lines\n" in shown
            assert "✓ Search def  2 matches in 1 file\n" in shown
            assert "✓ Find *.py  1 file\n" in shown
            assert re.search(r"✓ Run Python print\(1\).*\n    print\(2\)\n  │ 1\n  │ 2\n", terminal.text)
            assert "✓ List background processes  none\n" in shown
            assert "✓ Write new.txt  created, +1\n" in shown


async def test_ctrl_o_shows_the_whole_output_and_then_the_whole_transcript_in_the_pager(home, tmp_path):
    pager = tmp_path / "pager"
    pager.write_text(f"cat > {tmp_path}/paged; echo PAGER READY; head -c 1 < /dev/tty > /dev/null; echo PAGER LEFT\n")
    async with ModelServer([call("terminal", command="seq 1 9"), Say("It *ran*.")]) as server:
        home.use(server)
        async with TerminalProcess.of(home, PAGER=f"sh {pager}") as terminal:
            terminal.type("run" + ENTER)
            await terminal.until("It ran.\n\n›")
            assert "  │ 1\n" not in terminal.text
            terminal.type("a draft")
            await terminal.until("› a draft")
            terminal.type(CTRL_O)
            await terminal.until("✓ Run seq 1 9  9 lines\n" + "".join(f"  │ {n}\n" for n in range(1, 10)))
            await terminal.until("› a draft")
            terminal.type(CTRL_O)
            await terminal.until("PAGER READY")
            assert not terminal.is_raw()
            terminal.type("q" + ENTER)
            await terminal.until("PAGER LEFT")
            await terminal.until(lambda: terminal.is_raw() and terminal.shown[-2] == "› a draft")
            paged = (tmp_path / "paged").read_text()
    plain = re.sub(r"\x1b\[[\d;]*m", "", paged)
    assert "\n› run\n\n✓ Run seq 1 9  9 lines" in plain and plain.endswith("It ran.\n")


async def test_thinking_and_long_commands_can_be_expanded(home):
    command = "echo " + "word " * 30 + "last"
    async with ModelServer([call("terminal", command=command), Say("It ran.")]) as server:
        home.use(server)
        async with TerminalProcess.of(home, size=(60, 24)) as terminal:
            terminal.type("run" + ENTER)
            await terminal.until("It ran.")
            terminal.type(CTRL_O)
            await terminal.until(lambda: "".join(terminal.text.split()).count("wordlast") >= 2)


async def test_each_subagent_has_a_row_and_all_fold_into_one(home, tmp_path):
    def answer(body):
        messages = body["messages"]
        if "You are a subagent" not in str(messages):
            return Say("Both are done.") if messages[-1]["role"] == "tool" else delegate
        if messages[-1]["role"] == "tool":
            return Say("Fine.")
        name = "first" if "first task" in str(messages) else "second"
        return call("terminal", command=f"until test -e {tmp_path}/{name}; do sleep 0.05; done")

    delegate = call("delegate_task", tasks=[{"goal": "first task"}, {"goal": "second task"}])
    async with ModelServer(answer) as server:
        home.use(server)
        async with TerminalProcess.of(home, size=(100, 24)) as terminal:
            terminal.type("go" + ENTER)
            await terminal.until("  • first task  Run until test")
            await terminal.until("  • second task  Run until test")
            (tmp_path / "first").touch()
            await terminal.until("  ✓ first task  done")
            (tmp_path / "second").touch()
            await terminal.until("Both are done.")
            assert re.search(r"› go\n\n✓ Delegate 2 tasks  2 of 2 done.*\n\nBoth are done\.", terminal.text)


async def test_background_jobs_are_counted_shown_followed_and_stopped(home, tmp_path):
    command = f"echo up; until test -e {tmp_path}/go; do sleep 0.05; done; echo more; sleep 1000"
    async with ModelServer([call("terminal", command=command, background=True), Say("It runs.")]) as server:
        home.use(server)
        async with TerminalProcess.of(home, size=(120, 40)) as terminal:
            terminal.type("start" + ENTER)
            await terminal.until("It runs.")
            assert "✓ Start echo up;" in terminal.text and "p1 in the background" in terminal.text
            await terminal.until(lambda: counts_jobs(terminal))
            terminal.type("/jobs" + ENTER)
            await terminal.until("  p1  echo up; until test")
            terminal.type("/jobs p1" + ENTER)
            await terminal.until(") is running (")
            terminal.type("/jobs follow p1" + ENTER)
            await terminal.until("• p1 (echo up;")
            (tmp_path / "go").touch()
            await terminal.until("  │ up\n  │ more\n")
            terminal.type(ESCAPE)
            await terminal.until(lambda: "• p1 (echo up;" not in terminal.text)
            assert counts_jobs(terminal) and "again to edit" not in terminal.text
            terminal.type("/jobs follow p1" + ENTER)
            await terminal.until("• p1 (echo up;")
            terminal.type("/jobs stop p1" + ENTER)
            await terminal.until("Stopped p1 (echo up;")
            await terminal.until(lambda: not counts_jobs(terminal))
            await terminal.until("ended after")
            terminal.type("/jobs stop p9" + ENTER)
            await terminal.until("No background job matches “p9”. /jobs lists them.")


async def test_the_end_of_a_background_process_is_seen_while_idle(home, tmp_path):
    command = f"until test -e {tmp_path}/go; do sleep 0.05; done"
    async with ModelServer([call("terminal", command=command, background=True), Say("It runs.")]) as server:
        home.use(server)
        async with TerminalProcess.of(home) as terminal:
            terminal.type("start" + ENTER)
            await terminal.until("It runs.")
            await terminal.until(lambda: counts_jobs(terminal))
            (tmp_path / "go").touch()
            await terminal.until(lambda: not counts_jobs(terminal))


async def test_a_resumed_conversation_shows_its_tool_calls(home):
    async with ModelServer([call("terminal", command="seq 1 2"), Say("It ran.")]) as server:
        home.use(server)
        async with TerminalProcess.of(home) as terminal:
            terminal.type("run" + ENTER)
            await terminal.until("It ran.")
            terminal.type("/quit" + ENTER)
            await terminal.ended()
        async with TerminalProcess.of(home, "-c") as terminal:
            await terminal.until("› run\n\n✓ Run seq 1 2\n  │ 1\n  │ 2\n\nIt ran.")


async def test_a_killed_turn_says_how_much_was_done_when_it_resumes(home, tmp_path):
    done = [Call("write_file", {"path": f"{n}.txt", "content": "x"}) for n in (1, 2)]
    wait = Call("terminal", {"command": f"touch {tmp_path}/begun; sleep 1000"})
    async with ModelServer([Calls((*done, wait)), Say("Done now.")]) as server:
        home.use(server)
        async with TerminalProcess.of(home) as terminal:
            terminal.type("work" + ENTER)
            await terminal.until(lambda: (tmp_path / "begun").exists())
            terminal.signal(signal.SIGKILL)
            await terminal.ended()
        async with TerminalProcess.of(home) as terminal:
            await terminal.until("Done now.")
            assert "· Resumed. Step 3 was cut off." in terminal.text
