"""`alipes sessions`: list, show, search, export and delete."""

import asyncio
import os
import pty

import msgspec
import pytest

from tests.e2e.program import Home

pytestmark = pytest.mark.deadline(40)


@pytest.fixture
def home(tmp_path):
    return Home(tmp_path / "home")


async def talk(home: Home) -> None:
    for name, text in (("weather", "will it rain?"), ("cooking", "how long do eggs boil?")):
        done = await home.run("ask", "-m", "scripted", "--session", name, text)
        assert done.status == 0, done.err


async def test_an_empty_list_says_how_to_start(home):
    done = await home.run("sessions")
    assert done.status == 0 and "alipes ask" in done.out


async def test_the_list_is_aligned_and_the_latest_is_first(home):
    await talk(home)
    head, first, second = (await home.run("sessions", "list")).out.splitlines()
    assert "cooking" in first and "how long do eggs boil?" in first
    assert "weather" in second
    assert head.index("NAME") == first.index("cooking") == second.index("weather")
    limited = await home.run("sessions", "list", "-n", "1")
    assert "weather" not in limited.out


async def test_the_list_as_json(home):
    await talk(home)
    listed = msgspec.json.decode((await home.run("sessions", "list", "--json")).out)
    assert [one["address"]["chat"] for one in listed] == ["cooking", "weather"]
    assert listed[0]["turns"] == 1 and listed[0]["unfinished"] == 0


async def test_a_conversation_is_shown_by_name_or_id_prefix(home):
    await talk(home)
    by_name = (await home.run("sessions", "show", "weather")).out
    assert "you:\n  will it rain?\n" in by_name
    assert "alipes:\n  You said: will it rain?\n" in by_name
    id = msgspec.json.decode((await home.run("sessions", "show", "weather", "--json")).out)["session"]["id"]
    by_id = (await home.run("sessions", "show", id[:6])).out
    assert by_id.splitlines()[2:] == by_name.splitlines()[2:]


async def test_an_unknown_name_is_reported(home):
    done = await home.run("sessions", "show", "nothing")
    assert done.status == 1 and "sessions list" in done.err and done.out == ""


async def test_tool_calls_are_shown_with_their_results(home):
    call = '!call terminal {"command": "seq 1 30"}'
    await home.run("ask", "-m", "scripted", "--yes", "--session", "tools", call)
    shown = (await home.run("sessions", "show", "tools")).out
    assert "· Run seq 1 30" in shown
    assert "more lines" in shown


async def test_search_finds_messages(home):
    await talk(home)
    done = await home.run("sessions", "search", "eggs", "boil")
    assert done.status == 0
    assert "[eggs]" in done.out and "you: " in done.out and "rain" not in done.out
    hits = msgspec.json.decode((await home.run("sessions", "search", "rain", "--json")).out)
    assert {hit["role"] for hit in hits} == {"user", "assistant"}


async def test_nothing_found_is_status_1(home):
    await talk(home)
    done = await home.run("sessions", "search", "snow")
    assert done.status == 1 and "snow" in done.out


async def test_export_as_markdown_and_json(home, tmp_path):
    await talk(home)
    text = (await home.run("sessions", "export", "weather")).out
    assert text.startswith("# will it rain?") and "You said: will it rain?" in text
    done = await home.run("sessions", "export", "weather", "--format", "json", "-o", str(tmp_path / "x.json"))
    document = msgspec.json.decode((tmp_path / "x.json").read_bytes())
    assert done.out == "" and document["turns"][0]["ending"] == "answered"


async def test_an_export_that_cannot_be_written_is_reported(home):
    await talk(home)
    done = await home.run("sessions", "export", "weather", "-o", "/nowhere/x")
    assert done.status == 2 and "/nowhere/x" in done.err


async def test_delete_removes_only_that_conversation(home):
    await talk(home)
    done = await home.run("sessions", "delete", "weather", "--yes")
    assert done.status == 0 and "will it rain?" in done.out
    left = (await home.run("sessions", "list")).out
    assert "cooking" in left and "weather" not in left
    assert (await home.run("sessions", "search", "rain")).status == 1


async def test_without_a_terminal_delete_needs_yes(home):
    await talk(home)
    done = await home.run("sessions", "delete", "weather")
    assert done.status == 2 and "--yes" in done.err
    assert "weather" in (await home.run("sessions")).out


@pytest.mark.parametrize(("answer", "status"), [(b"y\n", 0), (b"\n", 1)])
async def test_delete_asks_for_confirmation(home, answer, status):
    await talk(home)
    ours, theirs = pty.openpty()
    async with home.started("sessions", "delete", "weather", stdin=theirs) as process:
        os.close(theirs)
        os.write(ours, answer)
        out, err = await process.communicate()
    os.close(ours)
    assert process.returncode == status
    assert b"This cannot be undone. [y/N]" in err
    assert (b"Deleted" in out) == (status == 0)


async def test_an_unfinished_turn_is_marked_and_its_conversation_is_not_deleted(home):
    async with home.started("ask", "-m", "scripted", "--session", "busy", "!say begun\n!wait 100") as process:
        await process.stdout.read(5)
        process.kill()
        await process.wait()
    listed = (await home.run("sessions", "list")).out
    assert "1*" in listed and "unfinished" in listed
    done = await home.run("sessions", "delete", "busy", "--yes")
    assert done.status == 1 and "unfinished" in done.err


async def test_a_list_whose_reader_closes_the_pipe_is_not_an_error(home):
    await talk(home)
    reading, writing = os.pipe()
    os.close(reading)
    process = await asyncio.create_subprocess_exec(
        *(os.sys.executable, "-m", "alipes", "sessions"),
        env=home.environ(),
        stdout=writing,
        stderr=asyncio.subprocess.PIPE,
    )
    os.close(writing)
    _, err = await process.communicate()
    assert (process.returncode, err) == (141, b"")
