"""An import again, broken off, in conflict, and taken back; no key where none belongs."""

import json
import sqlite3
from contextlib import closing

import pytest

from alipes.config import editor
from alipes.config.loader import load_settings
from alipes.features.importer.store.ledger import LedgerStore
from alipes.kernel.errors import ConfigError
from alipes.kernel.turns import Address
from alipes.store.open import open_home_store
from tests.world.imports import ImportingHome, copy_home, hash_tree


class KilledHere(Exception):
    """Ends an import where a kill would."""


CANARY = "canary-value-8f3a91c2"


@pytest.fixture
def home(tmp_path):
    return ImportingHome(tmp_path / "home")


@pytest.fixture
def source(tmp_path):
    return copy_home("hermes", tmp_path)


def add_exchange(source, session: str, *texts: str) -> None:
    with closing(sqlite3.connect(source / "state.db")) as db, db:
        for number, text in enumerate(texts):
            role = "assistant" if number % 2 else "user"
            sql = "INSERT INTO messages (session_id, role, content, timestamp) VALUES (?, ?, ?, ?)"
            db.execute(sql, (session, role, text, 1_794_900_000.0 + number))


def session_of(home, title: str) -> str:
    return home.query("SELECT id FROM sessions WHERE title = ?", title)[0][0]


async def test_a_second_import_writes_nothing(home, source):
    await home.run("hermes", source, secrets=True)
    rows, files = home.tables(), hash_tree(home.path / "imports") | home.files()
    again = await home.run("hermes", source, secrets=True)
    assert again.id == "" and home.tables() == rows
    assert hash_tree(home.path / "imports") | home.files() == files


async def test_undo_leaves_every_row_and_file_as_before(home, source):
    (home.path / "config.toml").write_text("# mine\n[terminal]\ntitle = false\n")
    (home.path / ".env").write_text("OTHER=1\n")
    (home.path / "memory").mkdir()
    (home.path / "memory" / "MEMORY.md").write_text("# Notes\n\nA line of mine.\n")
    async with open_home_store(load_settings(home.path, {})) as store:
        mine = await store.sessions.open(Address("telegram", "1002"))
    rows, files = home.tables(), home.files()
    result = await home.run("hermes", source, secrets=True, conflicts="replace")
    assert home.tables() != rows and home.files() != files
    undone = await home.undo(result.id)
    assert undone.kept == () and home.files() == files
    after = home.tables()
    hand_edit = [row for row in after["memory_changes"] if "edit" in row]
    assert len(hand_edit) == 1  # the file of before, which the memory had never seen
    assert after | {"memory_changes": rows["memory_changes"]} == rows
    assert mine.session in {row[1] for row in after["leases"]}


async def test_undo_of_an_import_into_a_new_home_leaves_it_empty(home, source):
    async with open_home_store(load_settings(home.path, {})):
        pass
    rows, files = home.tables(), home.files()
    result = await home.run("hermes", source, secrets=True)
    assert (await home.undo(result.id)).kept == ()
    assert home.tables() == rows and home.files() == files


async def test_undo_keeps_what_was_touched_and_says_so(home, source):
    result = await home.run("hermes", source)
    (home.path / "SOUL.md").write_text("My own words.\n")
    editor.change({("timezone",): "Europe/London"}, home=home.path)
    chat = session_of(home, "Good morning Ada.")
    with closing(sqlite3.connect(home.path / "alipes.db")) as db, db:
        db.execute("UPDATE sessions SET pinned = 1 WHERE id = ?", (chat,))
    undone = await home.undo(result.id)
    assert undone.kept == (f"conversations: {chat}: it went on or was changed here",)
    assert (home.path / "SOUL.md").read_text() == "My own words.\n"
    config = load_settings(home.path, {})
    assert config.timezone == "Europe/London" and config.model != "custom/mock-1"
    assert home.query("SELECT id FROM sessions") == [(chat,)]


async def test_a_conversation_that_grew_there_is_continued(home, source):
    await home.run("hermes", source)
    before = session_of(home, "Good morning Ada.")
    add_exchange(source, "20261116_015621_883afaf1", "Later question", "Later answer")
    result = await home.run("hermes", source)
    assert [each.item.why for each in result.results] == ["it went on there"]
    texts = home.query("SELECT text FROM turns WHERE session_id = ? ORDER BY number", before)
    assert texts[-1] == ("Later question",) and result.differences == ()
    with pytest.raises(ConfigError, match="hermes-2 continued what hermes-1 imported: undo that first"):
        await home.undo("hermes-1")
    assert (await home.undo("hermes-2")).kept == ()
    assert home.query("SELECT text FROM turns WHERE session_id = ? ORDER BY number", before) == texts[:-1]
    assert (await home.undo("hermes-1")).kept == ()


async def test_a_conversation_that_grew_on_both_sides_becomes_a_branch(home, source):
    await home.run("hermes", source)
    mine = session_of(home, "Good morning Ada.")
    with closing(sqlite3.connect(home.path / "alipes.db")) as db, db:
        db.execute("UPDATE sessions SET title = 'Renamed by me' WHERE id = ?", (mine,))
    add_exchange(source, "20261116_015621_883afaf1", "Later question", "Later answer")
    rows = home.query("SELECT number FROM messages WHERE session_id = ?", mine)
    await home.run("hermes", source)
    assert home.query("SELECT number FROM messages WHERE session_id = ?", mine) == rows
    ((parent,),) = home.query("SELECT parent_id FROM sessions WHERE title LIKE '%as it went on there%'")
    assert parent == mine and home.query("SELECT session_id FROM leases WHERE session_id = ?", mine)
    assert (await home.run("hermes", source)).id == ""


async def test_a_chat_keeps_the_conversation_that_it_has_here(home, source):
    async with open_home_store(load_settings(home.path, {})) as store:
        mine = await store.sessions.open(Address("telegram", "1001"))
        result = None
    result = await home.run("hermes", source)
    key = Address("telegram", "1001").key
    assert home.query("SELECT session_id FROM leases WHERE key = ?", key) == [(mine.session,)]
    noted = [each for each in result.plan.items if "already has a conversation" in each.why]
    assert [each.what for each in noted] == ["Good morning Ada. (6 messages)"]


async def test_a_conflict_keeps_mine_unless_it_is_to_be_replaced(home, source):
    (home.path / "SOUL.md").write_text("Mine.\n")
    editor.change({("timezone",): "Europe/London"}, {"BRAVE_API_KEY": "mine"}, home=home.path)
    kept = await home.run("hermes", source, secrets=True)
    assert (home.path / "SOUL.md").read_text() == "Mine.\n"
    conflicts = {each.target for each in kept.plan.items if each.state == "conflict"}
    assert conflicts == {"SOUL.md", "timezone", "BRAVE_API_KEY"}
    await home.run("hermes", source, secrets=True, conflicts="replace")
    assert load_settings(home.path, {}).timezone == "Europe/Vienna"
    assert (home.path / "SOUL.md").read_text().startswith("You are a calm")
    assert (home.path / "imports/hermes-2/before/SOUL.md").read_text() == "Mine.\n"
    env = (home.path / ".env").read_text()
    assert "BRAVE_API_KEY=EXAMPLE-brave" in env and "BRAVE_API_KEY_BEFORE_IMPORT=mine" in env
    await home.undo("hermes-2")
    assert "BRAVE_API_KEY=mine" in (home.path / ".env").read_text()
    assert (home.path / "SOUL.md").read_text() == "Mine.\n"


async def test_both_keeps_both_where_that_is_possible(home, source):
    skill = home.path / "skills" / "weigh-hives"
    skill.mkdir(parents=True)
    (skill / "SKILL.md").write_text("---\nname: weigh-hives\ndescription: Mine\n---\nMine.\n")
    (home.path / "SOUL.md").write_text("Mine.\n")
    result = await home.run("hermes", source, conflicts="both")
    assert "Mine." in (skill / "SKILL.md").read_text()
    assert "name: weigh-hives-hermes" in (home.path / "skills/weigh-hives-hermes/SKILL.md").read_text()
    assert "calm assistant" in (home.path / "imports" / result.id / "left" / "SOUL.md").read_text()


async def test_conversations_before_a_date_are_left_out(home, source):
    plan = await home.plan("hermes", source, since=1_794_700_000.0)
    old = [each for each in plan.items if each.why == "older than --since"]
    assert len(old) == 4


async def test_what_does_not_fit_into_the_memory_is_kept_aside(home, source):
    long = [f"Entry {number} " + "x" * 300 for number in range(8)]
    (source / "memories/MEMORY.md").write_text("\n§\n".join(long))
    result = await home.run("hermes", source)
    aside = (home.path / "imports" / result.id / "left/MEMORY.md").read_text()
    assert "Entry 7" in aside and "Entry 0" not in aside
    assert (await home.run("hermes", source)).id == ""


def plant_canaries(source) -> None:
    for file in (".env", "auth.json", "config.yaml"):
        text = (source / file).read_text()
        for value in ("EXAMPLE-bot-token-not-real", "sk-or-EXAMPLE-not-a-key", "sk-ant-EXAMPLE-not-a-key"):
            text = text.replace(value, CANARY)
        text = text.replace("sk-or-EXAMPLE-spare-not-a-key", CANARY).replace("EXAMPLE-brave", CANARY)
        text = text.replace("EXAMPLE-not-a-key", CANARY).replace("Bearer ${NOTES_TOKEN}", f"Bearer {CANARY}")
        (source / file).write_text(text.replace("      TZ: Europe/Vienna", f"      API_TOKEN: {CANARY}"))


@pytest.mark.parametrize("secrets", [False, True])
async def test_keys_are_in_the_env_file_or_nowhere(home, source, secrets, caplog):
    plant_canaries(source)
    result = await home.run("hermes", source, secrets=secrets)
    found = {
        str(path.relative_to(home.path))
        for path in home.path.rglob("*")
        if path.is_file() and CANARY.encode() in path.read_bytes()
    }
    assert found == ({".env"} if secrets else set())
    assert CANARY not in repr(result) and CANARY not in caplog.text
    if secrets:
        assert (home.path / ".env").stat().st_mode & 0o777 == 0o600
        assert (home.path / ".env").read_text().count(CANARY) == 8


async def test_a_dry_run_has_every_item_and_writes_nothing(home, source):
    plan = await home.plan("hermes", source)
    assert not (home.path / "imports").exists() and not home.query("SELECT * FROM imports")
    json.dumps([each.what for each in plan.items])


@pytest.mark.parametrize("kind", ["memory", "persona", "skills", "schedules", "settings", "mcp", "plugins", "keys"])
async def test_what_was_written_when_it_was_broken_off_is_known_afterwards(home, source, kind, monkeypatch, tmp_path):
    once = ImportingHome(tmp_path / "once")
    await once.run("hermes", source, secrets=True)
    rows, files = once.tables(times=False), once.files()
    async with open_home_store(load_settings(home.path, {})):
        pass
    empty = home.tables(), home.files()
    add = LedgerStore.add

    async def break_off(ledger, entry):
        if entry.kind == kind and entry.target_hash != "pending":
            raise KilledHere
        await add(ledger, entry)

    monkeypatch.setattr(LedgerStore, "add", break_off)
    with pytest.raises(KilledHere):
        await home.run("hermes", source, secrets=True)
    monkeypatch.undo()
    again = await home.run("hermes", source, secrets=True)
    assert again.id == "hermes-1" and again.differences == ()
    ours = home.tables(times=False)
    assert {name for name in rows if rows[name] != ours[name]} == set()
    assert {name for name in files if ".versions/weigh" not in name and files[name] != home.files().get(name)} <= {
        "skills/.pins.json"
    }
    assert (await home.undo("hermes-1")).kept == () and (home.tables(), home.files()) == empty


async def test_an_import_that_was_broken_off_is_taken_back(home, source, monkeypatch):
    async with open_home_store(load_settings(home.path, {})):
        pass
    empty = home.tables(), home.files()
    add = LedgerStore.add

    async def break_off(ledger, entry):
        if entry.kind == "plugins" and entry.target_hash != "pending":
            raise KilledHere
        await add(ledger, entry)

    monkeypatch.setattr(LedgerStore, "add", break_off)
    with pytest.raises(KilledHere):
        await home.run("hermes", source)
    monkeypatch.undo()
    assert (await home.undo("hermes-1")).kept == () and (home.tables(), home.files()) == empty


async def test_keys_in_arguments_addresses_rules_and_env_files_are_nowhere(home, source, tmp_path):
    key = "sk-or-v1-canary0123456789abcdefABCDEF"
    config = (
        (source / "config.yaml").read_text().replace("mcp_servers:", f"mcp_servers:\n{SERVERS}".replace("KEY", key))
    )
    config = config.replace("http://127.0.0.1:9100/v1", f"http://me:{key}@127.0.0.1:9100/v1")
    (source / "config.yaml").write_text(config)
    (source / "plugins/greeter/.env").write_text(f"GREETER_KEY={key}\n")
    (source / "skills/bees/weigh-hives/.env.local").write_text(f"A={key}\n")
    (source / ".env").write_text(f"{(source / '.env').read_text()}HASS_URL=http://u:{key}@h\nMY_PAT={key}\n")
    claude = copy_home("claude_code", tmp_path) / ".claude"
    rules = {"permissions": {"allow": [f"Bash(curl -H 'Authorization: Bearer {key}' https://x)"]}}
    (claude / "settings.json").write_text(json.dumps(rules))
    results = [await home.run("hermes", source), await home.run("claude-code", claude)]
    assert key not in repr(results)
    assert [path for path in home.path.rglob("*") if path.is_file() and key.encode() in path.read_bytes()] == []
    why = {(item.kind, item.what.partition(" =")[0]): item.why for item in results[0].plan.items}
    assert (
        "seem to contain a key" in why["mcp", "MCP server args"] and "contain a key" in why["mcp", "MCP server query"]
    )
    assert "it seems to contain a key" in why["settings", "providers.custom"]
    assert why["keys", "MY_PAT"] == "only with --secrets"


SERVERS = """\
  args: {command: uvx, args: [server, --api-key, KEY]}
  query: {url: "http://127.0.0.1:9300/mcp?api_key=KEY"}
"""
