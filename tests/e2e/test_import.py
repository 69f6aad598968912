"""`alipes import` as people run it, and what continues afterwards: chats, search, requests to every API."""

import json
import shutil
import sqlite3
from contextlib import closing

import pytest

from tests.e2e.program import Home
from tests.e2e.service import open_serve, write_settings
from tests.world.imports import copy_home, hash_tree
from tests.world.model_calls import WIRES
from tests.world.model_server import ModelServer, Say
from tests.world.telegram_server import TelegramServer

pytestmark = pytest.mark.deadline(120)


@pytest.fixture
def home(tmp_path):
    return Home(tmp_path / "home")


@pytest.fixture
def source(tmp_path):
    return copy_home("hermes", tmp_path)


async def test_a_dry_run_writes_nothing_not_even_a_home(home, source):
    done = await home.run("import", "hermes", str(source), "--dry-run")
    assert (done.status, done.err) == (0, "") and "conversations         16" in done.out
    assert not home.path.exists()
    (await home.run("import", "hermes", str(source), "--yes", "--only", "memory"))
    before = hash_tree(home.path)
    listed = json.loads((await home.run("import", "hermes", str(source), "--dry-run", "--json")).out)
    assert listed["sums"]["memory"] == {"same": 4} and listed["sums"]["conversations"] == {"new": 16}
    assert hash_tree(home.path) == before


async def test_import_list_check_again_and_undo(home, source):
    done = await home.run("import", "hermes", str(source), "--yes")
    assert done.status == 0 and "To take it back: alipes import undo hermes-1" in done.out
    assert "arrived paused" in done.out and "permissions were not taken over" in done.out
    report = (home.path / "imports/hermes-1/report.md").read_text()
    assert "## What to do next" in report and "recursive delete" in report
    assert json.loads((await home.run("import", "list", "--json")).out)[0]["id"] == "hermes-1"
    assert "as they were imported" in (await home.run("import", "check", "hermes-1")).out
    assert "nothing new" in (await home.run("import", "hermes", str(source), "--yes")).out
    (home.path / "SOUL.md").write_text("Mine")
    changed = await home.run("import", "check", "hermes-1")
    assert (changed.status, changed.out) == (1, "persona: SOUL.md: it was changed here\n")
    undone = await home.run("import", "undo", "hermes-1", "--yes")
    assert undone.status == 0 and "16 taken back" in undone.out
    assert "There is no import 'hermes-1'" in (await home.run("import", "undo", "hermes-1", "--yes")).err
    assert "Taken back" in (home.path / "imports/hermes-1/report.md").read_text()


async def test_without_a_path_the_home_is_found_and_doctor_names_it(home, source):
    shutil.move(source, home.path.parent / ".hermes")
    found = await home.run("import", "hermes", "--dry-run", HOME=str(home.path.parent))
    assert "conversations         16" in found.out
    checks = await home.run("doctor", HOME=str(home.path.parent))
    assert "Hermes Agent has a home at" in checks.out and "alipes import hermes --dry-run" in checks.out
    given = ("--provider", "ollama", "--model", "m", "--no-check", "--yes")
    setup = await home.run("setup", *given, HOME=str(home.path.parent))
    assert "To bring it over: alipes import hermes --dry-run" in setup.out, setup.err


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("hermes", "nowhere"), "There is no folder nowhere"),
        (("hermes", "."), "is no home of Hermes Agent"),
        (("hermes",), "No home of Hermes Agent was found"),
        (("hermse",), "Did you mean hermes?"),
        (("hermes", "hermes", "--only", "memroy"), "Did you mean memory?"),
        (("hermes", "hermes", "--since", "soon"), "is no date"),
        (("hermes", "hermes", "--agent", "x"), "Hermes Agent has no agents"),
        (("hermes", "hermes", "--profile", "wrok"), "Did you mean work?"),
        (("hermes", "hermes"), "use --yes to import"),
        (("hermes", "hermes", "--owner", "telegram:9", "--yes"), "not among the people there: telegram:1001"),
        (("check", "hermes-9"), "There is no import 'hermes-9'"),
    ],
)
async def test_what_is_wrong_is_said(home, source, words, said):
    done = await home.run("import", *words, HOME=str(home.path.parent / "nobody"))
    assert done.status == 2 and said in done.err and "Traceback" not in done.err


async def test_another_home_and_some_kinds_only(home, source, tmp_path):
    done = await home.run(
        "import", "hermes", str(source), "--into", str(tmp_path / "other"), "--skip", "conversations,keys", "--yes"
    )
    assert done.status == 0, done.err
    assert not (home.path / "alipes.db").exists() and (tmp_path / "other" / "SOUL.md").exists()
    with closing(sqlite3.connect(tmp_path / "other" / "alipes.db")) as db:
        assert db.execute("SELECT count(*) FROM sessions").fetchone() == (0,)


async def test_a_message_in_the_same_chat_continues_the_conversation(home, source):
    async with ModelServer([Say("Still empty.")]) as model, TelegramServer() as telegram:
        write_settings(home, model, telegram)
        text = (home.path / "config.toml").read_text()
        done = await home.run("import", "hermes", str(source), "--yes")
        assert done.status == 0, done.err
        assert "home_chat" not in (home.path / "config.toml").read_text() and text.splitlines()[0] in text
        async with open_serve(home) as served:
            await served.ready()
            telegram.chats.say("And now?", chat=1001)
            await telegram.shows(1001, "Still empty.")
            assert await served.left() == 0
        sent = [each["content"] for each in model.requests[-1].body["messages"] if each["role"] != "system"]
    shown = json.dumps(sent)
    places = [
        shown.index(text)
        for text in ("Hello there.", "Good morning Ada.", "What is in the folder?", "Nothing yet.", "And now?")
    ]
    assert places == sorted(places)


async def test_search_finds_a_word_of_an_imported_message(home, source):
    async with ModelServer([]) as model:
        home.use(model)
        await home.run("import", "hermes", str(source), "--yes", "--only", "conversations")
        found = await home.run("sessions", "search", "carpenter", "--json")
        assert "The [carpenter] bee." in found.out, found.err
        compacted = await home.run("sessions", "search", "2016", "--json")
        assert "In [2016] it was 21 kg." in compacted.out


@pytest.mark.deadline(300)
@pytest.mark.parametrize("api", WIRES)
async def test_every_conversation_can_be_continued_with_every_api(home, source, api):
    async with ModelServer([Say(f"Answer {number}.") for number in range(16)]) as model:
        home.use(model)
        text = (home.path / "config.toml").read_text()
        text = text.replace('"openai-chat"', f'"{api}"').replace(model.url("openai-chat"), model.url(api))
        (home.path / "config.toml").write_text(text)
        await home.run("import", "hermes", str(source), "--yes", "--only", "conversations")
        listed = json.loads((await home.run("sessions", "list", "--json")).out)
        assert len(listed) >= 15
        for number, each in enumerate(listed):
            done = await home.run("ask", "--resume", each["id"], "Go on.")
            assert (done.status, done.out.strip()) == (0, f"Answer {number}."), done.err
