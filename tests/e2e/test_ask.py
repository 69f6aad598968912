"""`alipes ask`: the real program, a real socket, a scripted model."""

import asyncio
import os
import signal

import msgspec
import pytest

from alipes.kernel.turns import Event, TextDelta, TurnEnded, TurnStarted
from tests.e2e.program import Home, children, read_until, wait_finished
from tests.world.model_server import Call, Calls, Cut, Fail, ModelServer, Say, Stall, Tokens
from tests.world.web_site import open_web_site

pytestmark = pytest.mark.deadline(60)
EVENT = msgspec.json.Decoder(Event)
PNG = b"\x89PNG\r\n\x1a\n" + b"\0" * 20


@pytest.fixture
def home(tmp_path):
    return Home(tmp_path / "home")


async def ending(home: Home) -> dict:
    """How the last turn ended, according to the export."""
    listed = msgspec.json.decode((await home.run("sessions", "list", "--json")).out)
    document = (await home.run("sessions", "export", listed[0]["id"], "--format", "json")).out
    return msgspec.json.decode(document)["turns"][-1]


async def test_only_the_answer_goes_to_standard_output(home):
    async with ModelServer([Say("It is **four**.", usage=Tokens(1234, 5))]) as server:
        home.use(server)
        done = await home.run("ask", "-v", "two", "and", "two?")
    assert (done.status, done.out) == (0, "It is **four**.\n")
    assert "1,234 tokens in" in done.err and "session " in done.err
    assert server.bodies[0]["messages"][-1] == {"role": "user", "content": "two and two?"}


async def test_without_verbose_standard_error_is_empty(home):
    async with ModelServer([Say("Yes.")]) as server:
        home.use(server)
        done = await home.run("ask", "well?")
    assert (done.status, done.out, done.err) == (0, "Yes.\n", "")


async def test_the_answer_lists_the_pages_that_were_read(home):
    async with open_web_site() as site:
        script = [Calls((Call("web_extract", {"urls": [site.url()]}),)), Say("Larks sing [1].", pieces=3)]
        async with ModelServer(script) as server:
            home.use(server)
            with open(home.path / "config.toml", "a") as file:
                file.write(f'[fetch]\nallow = ["{site.place}"]\n')
            done = await home.run("ask", "what do larks do?")
    assert done.out == f"Larks sing [1].\n\nSources:\n- [1] Larks of Vienna: <{site.url()}>\n"


async def test_under_nohup_a_hangup_is_ignored(home):
    text = "!say begun\n!wait 0.5\n!say finished"
    async with home.started("ask", "-m", "scripted", text, under=("nohup",)) as process:
        await read_until(process.stdout, "begun")
        process.send_signal(signal.SIGHUP)
        done = await wait_finished(process)
    assert (done.status, done.err) == (0, "") and "finished" in done.out


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
async def test_a_signal_stops_the_turn_and_leaves_nothing_behind(home, number):
    async with ModelServer([Stall("The answer is"), Say("Back again.")]) as server:
        home.use(server)
        async with home.started("ask", "--session", "s", "long story") as process:
            await read_until(process.stdout, "The answer is")  # printed while the model is still writing
            process.send_signal(number)
            done = await wait_finished(process)
            assert done.status == 130
            assert "stopped" in done.err and "Traceback" not in done.err
        await server.closed_early()
        assert list((home.path / "run").iterdir()) == []
        assert (await ending(home))["ending"] == "stopped"
        again = await home.run("ask", "--session", "s", "and now?")
        assert (again.status, again.out) == (0, "Back again.\n")


async def test_a_signal_before_the_turn_starts_exits_at_once(home):
    async with ModelServer([]) as server:
        home.use(server)
        async with home.started("ask", stdin=asyncio.subprocess.PIPE) as process:
            assert "waiting for standard input" in await read_until(process.stderr, "waiting")
            process.send_signal(signal.SIGINT)
            assert (await wait_finished(process)).status == 130
    assert server.requests == []


async def test_a_second_signal_exits_at_once_and_the_turn_is_not_resumed(home):
    async with ModelServer([Stall("Once"), Say("Other.")]) as server:
        home.use(server)
        async with home.started("ask", "--session", "s", "hm") as process:
            await read_until(process.stdout, "Once")
            process.send_signal(signal.SIGINT)
            process.send_signal(signal.SIGINT)
            assert (await wait_finished(process)).status in (130, -signal.SIGINT)
        assert (await home.run("ask", "other")).out == "Other.\n"
    assert len(server.requests) == 2


async def test_json_prints_every_event_as_a_line_and_nothing_else(home):
    async with ModelServer([Say("One two three", pieces=3)]) as server:
        home.use(server)
        done = await home.run("ask", "--json", "count")
    events = [EVENT.decode(line) for line in done.out.splitlines()]
    assert done.status == 0 and done.err == ""
    assert isinstance(events[0], TurnStarted) and isinstance(events[-1], TurnEnded)
    assert "".join(e.text for e in events if isinstance(e, TextDelta)) == "One two three"


async def test_piped_input_is_context_after_the_prompt(home):
    async with ModelServer([Say("ok")] * 2) as server:
        home.use(server)
        await home.run("ask", "sum this up", stdin=b"line 1\nline 2\n")
        await home.run("ask", stdin=b"the prompt itself\n")
    first, second = (body["messages"][-1]["content"] for body in server.bodies)
    assert first == "sum this up\n\n<stdin>\nline 1\nline 2\n</stdin>"
    assert second == "the prompt itself\n"


async def test_an_empty_prompt_is_a_usage_error(home):
    done = await home.run("ask", stdin=b" \n")
    assert done.status == 2 and "no prompt given" in done.err


async def test_a_named_session_remembers_and_continue_finds_it(home):
    async with ModelServer([Say("Hello Ada."), Say("Ada."), Say("Still Ada.")]) as server:
        home.use(server)
        for where, text in (("--session=names", "I am Ada"), ("--session=names", "who am I?"), ("-c", "and now?")):
            done = await home.run("ask", where, text)
            assert done.status == 0, done.err
    said = [message["content"] for message in server.bodies[2]["messages"] if message["role"] != "system"]
    assert said == ["I am Ada", "Hello Ada.", "who am I?", "Ada.", "and now?"]


async def test_continue_without_a_conversation_is_an_error(home):
    done = await home.run("ask", "--continue", "-m", "scripted", "hm?")
    assert done.status == 2 and "no conversation to continue" in done.err


async def test_an_unknown_model_is_rejected_before_anything_is_stored(home):
    done = await home.run("ask", "-m", "scriptet", "hi")
    assert (done.status, done.out) == (2, "")
    assert "scripted" in done.err and "Traceback" not in done.err
    assert (await home.run("sessions", "--json")).out == "[]\n"


async def test_invalid_settings_are_reported_with_file_and_line(home):
    home.path.mkdir()
    (home.path / "config.toml").write_text('\nmodel = "x\n')
    done = await home.run("ask", "hi")
    assert done.status == 2
    assert "config.toml:2" in done.err and "Traceback" not in done.err


async def test_a_failure_is_one_sentence_and_status_1(home):
    async with ModelServer([Fail(401, "no such key")]) as server:
        home.use(server)
        done = await home.run("ask", "hi")
    assert (done.status, done.out) == (1, "")
    assert done.err.startswith("alipes: failed: ") and "Traceback" not in done.err


async def test_a_cut_off_answer_is_marked_and_the_retry_starts_on_a_new_line(home):
    async with ModelServer([Cut("Half an ans"), Say("The whole answer.")]) as server:
        home.use(server)
        done = await home.run("ask", "hi")
    assert (done.status, done.out) == (0, "Half an ans\nThe whole answer.\n")
    assert "Ignore the partial answer" in done.err


async def test_the_turn_is_stopped_when_the_reader_closes_the_pipe(home):
    async with ModelServer([Say("word " * 1000, pieces=1000, delay=0.01)]) as server:
        home.use(server)
        reading, writing = os.pipe()
        process = await asyncio.create_subprocess_exec(
            *(os.sys.executable, "-m", "alipes", "ask", "talk"),
            env=home.environ(),
            stdin=asyncio.subprocess.DEVNULL,
            stdout=writing,
            stderr=asyncio.subprocess.PIPE,
        )
        os.close(writing)
        await asyncio.to_thread(os.read, reading, 1)
        os.close(reading)
        done = await finished_with_errors(process)
        assert done[0] == 141 and "Traceback" not in done[1] and "stopped" not in done[1]
        await server.closed_early()
    assert (await ending(home))["detail"] == "disconnected"


async def finished_with_errors(process) -> tuple[int, str]:
    _, err = await process.communicate()
    return process.returncode, err.decode()


async def test_an_image_is_sent_to_the_model(home, tmp_path):
    (tmp_path / "p.png").write_bytes(PNG)
    async with ModelServer([Say("A picture.")]) as server:
        home.use(server)
        done = await home.run("ask", "--image", "p.png", "what is it?")
    assert done.out == "A picture.\n"
    kinds = [part["type"] for part in server.bodies[0]["messages"][-1]["content"]]
    assert kinds == ["text", "image_url"]


async def test_a_missing_image_is_a_usage_error(home):
    done = await home.run("ask", "--image", "nothing.png", "what is it?")
    assert done.status == 2 and "nothing.png: No such file" in done.err


async def test_a_turn_cut_off_by_kill_9_is_finished_by_the_next_process(home):
    async with ModelServer([Stall("Once upon"), Say("Unrelated."), Say("The end.")]) as server:
        server.script = lambda body: _answer_by_request(server, body)
        home.use(server)
        async with home.started("ask", "--session", "tale", "tell a tale") as process:
            await read_until(process.stdout, "Once upon")
            process.kill()
        done = await home.run("ask", "something else")
        assert (done.status, done.out) == (0, "Unrelated.\n")
        assert "interrupted" in done.err and "tale" in done.err
        shown = (await home.run("sessions", "show", "tale")).out
        assert "The end." in shown
    assert len(server.requests) == 3


def _answer_by_request(server: ModelServer, body: dict) -> object:
    """Chosen by the request, as two turns may ask in any order."""
    if len(server.requests) == 1:
        return Stall("Once upon")
    return Say("The end." if body["messages"][-1]["content"] == "tell a tale" else "Unrelated.")


async def test_a_session_owned_by_another_process_runs_there_and_is_followed_here(home):
    async with ModelServer([Say("First.", wait=1.0), Say("Second.")]) as server:
        home.use(server)
        async with home.started("ask", "--session", "shared", "one") as first:
            await server.asked()
            second = await home.run("ask", "--session", "shared", "two")
            assert (second.status, second.out) == (0, "Second.\n")
            done = await wait_finished(first)
        assert (done.status, done.out) == (0, "First.\n")
    assert [m["content"] for m in server.bodies[1]["messages"][-3:]] == ["one", "First.", "two"]


async def test_stopping_the_follower_stops_its_own_turn_in_the_other_process(home):
    async with ModelServer([Say("First.", wait=3.0), Stall("Second")]) as server:
        home.use(server)
        async with home.started("ask", "--session", "shared", "one") as first:
            await server.asked()
            async with home.started("ask", "--session", "shared", "two") as second:
                await read_until(second.stdout, "Second")
                second.send_signal(signal.SIGINT)
                assert (await wait_finished(second)).status == 130
            assert (await wait_finished(first)).out == "First.\n"


async def test_a_stop_leaves_no_child_processes(home):
    async with ModelServer([Call("terminal", {"command": "sleep 1000 & setsid sleep 1000"})]) as server:
        home.use(server)
        async with home.started("ask", "--yes", "sleep") as process:
            await read_until(process.stderr, "Run sleep")
            while not (living := children(process.pid)):
                await asyncio.sleep(0.01)
            process.send_signal(signal.SIGINT)
            assert (await wait_finished(process)).status == 130
        assert [pid for pid in living if os.path.exists(f"/proc/{pid}")] == []


async def test_a_tool_call_is_shown_on_standard_error_without_its_result(home):
    async with ModelServer([Call("terminal", {"command": "echo hello"}), Say("Done.")]) as server:
        home.use(server)
        done = await home.run("ask", "--yes", "say hello")
    assert (done.status, done.out) == (0, "Done.\n")
    assert "· Run echo hello" in done.err


async def test_reaching_the_step_limit_prints_a_summary_and_exits_with_1(home):
    async with ModelServer([Call("terminal", {"command": "true"}), Say("So far.")]) as server:
        home.use(server, max_steps=1)
        done = await home.run("ask", "--yes", "work")
    assert (done.status, done.out) == (1, "So far.\n")
    assert "step limit" in done.err


async def test_an_env_file_that_others_can_read_is_warned_about_at_every_start(home):
    home.path.mkdir(mode=0o700, exist_ok=True)
    (home.path / ".env").write_text("OPENAI_API_KEY=abc\n")
    (home.path / ".env").chmod(0o644)
    for words in (["ask", "-m", "scripted", "hi"], ["-m", "scripted"]) * 2:
        done = await home.run(*words)
        assert done.status == 0 and ".env contains secrets and is readable by other users (mode 644)" in done.err
    (home.path / ".env").chmod(0o600)
    assert "readable by other users" not in (await home.run("ask", "-m", "scripted", "hi")).err


PERSON = '{"type": "object", "properties": {"age": {"type": "integer"}}, "required": ["age"]}'


async def test_with_a_schema_only_the_document_is_printed(home, tmp_path):
    (tmp_path / "person.json").write_text(PERSON)
    script = [Calls((Call("terminal", {"command": "echo 4"}),), text="Let me look."), Say('{"age": "4"}')]
    async with ModelServer([*script, Say('It is ```json\n{"age": 4}\n```')]) as server:
        home.use(server)
        done = await home.run("ask", "--schema", str(tmp_path / "person.json"), "-y", "how old is she?")
    assert (done.status, done.out) == (0, '{"age": 4}\n')
    assert "asking for a corrected one" in done.err
    assert PERSON.replace(" ", "") in server.bodies[0]["messages"][0]["content"].replace(" ", "")
    async with ModelServer([Say('{"age": 4}')] * 2) as server:
        home.use(server)
        quiet = await home.run("ask", "-q", "--schema", PERSON, "how old?")
        events = await home.run("ask", "--json", "--schema", PERSON, "how old?")
    assert (quiet.out, quiet.err) == ('{"age": 4}\n', "")
    assert EVENT.decode(events.out.splitlines()[-1]).ending == "answered"


async def test_a_turn_that_gives_up_has_a_status_of_its_own(home):
    async with ModelServer([Say("I do not know.")] * 2) as server:
        home.use(server)
        done = await home.run("ask", "--schema", PERSON, "how old is she?")
    assert (done.status, done.out) == (4, "")
    assert "gave up: the answer does not match its schema at $: it is not JSON" in done.err
    assert (await ending(home))["ending"] == "gave_up"


@pytest.mark.parametrize(
    ("schema", "why"),
    [
        ("{", "The schema is not JSON"),
        ("no-such-file.json", "--schema no-such-file.json: No such file"),
        ('{"type": "x"}', "The schema is not valid at $.type"),
    ],
)
async def test_a_schema_that_cannot_be_used_is_wrong_usage(home, schema, why):
    done = await home.run("ask", "-m", "scripted", "--schema", schema, "hello")
    assert done.status == 2 and why in done.err
