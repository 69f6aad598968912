"""`alipes page`: links, the list of browsers, and logging them out; output and errors."""

import asyncio
import io
import json
import re

import pytest

from alipes.cli.main import main
from alipes.kernel.messages import Text, assistant, user
from alipes.kernel.turns import Address, Inbound, Said
from alipes.runtime.process_lock import hold_process_lock
from alipes.store.sql.browsers import BrowserStore
from alipes.store.sqlite.store import open_store


@pytest.fixture
def home(tmp_path, monkeypatch):
    monkeypatch.setenv("ALIPES_HOME", str(tmp_path / "home"))
    (tmp_path / "home" / "run").mkdir(parents=True)
    return tmp_path / "home"


@pytest.fixture
def seen(home, monkeypatch, capsys):
    def run(*words):
        monkeypatch.setattr("sys.stdin", io.StringIO(""))
        try:
            status = main(["page", *words])
        except SystemExit as left:
            status = left.code
        shown = capsys.readouterr()
        return status, shown.out, shown.err

    return run


@pytest.fixture
def served(home):
    """Another process seems to serve this home."""
    with hold_process_lock(home / "run" / "serve.claim") as lock:
        lock.write_address("http://127.0.0.1:8742")
        yield lock


def in_store(home, act):
    async def run():
        async with open_store(home) as store:
            return await act(BrowserStore(store.database))

    return asyncio.run(run())


def add_browser(home, name, scope="admin"):
    async def act(browsers):
        return (await browsers.log_in((await browsers.add_code(scope, name)).code, "")).browser

    return in_store(home, act)


def code_of(out):
    return re.search(r"#login=([\w-]{32})$", out.splitlines()[0])[1]


def test_without_a_server_it_says_what_to_do_and_makes_no_link(seen):
    status, out, err = seen()
    assert (status, out) == (1, "") and "`alipes serve` is not running" in err and "run `alipes page` again" in err


def test_the_link_logs_a_browser_in(seen, served, home):
    status, out, err = seen("--scope", "read", "--name", "My phone")
    assert status == 0 and out.startswith("http://127.0.0.1:8742/#login=") and "five minutes" in err
    login = in_store(home, lambda browsers: browsers.log_in(code_of(out), "Chrome"))
    assert (login.browser.name, login.browser.scope) == ("My phone", "read")


def test_a_server_on_every_address_is_opened_on_this_machine(seen, served):
    served.write_address("http://0.0.0.0:9000")
    assert seen()[1].startswith("http://127.0.0.1:9000/#login=")
    served.write_address("http://[::]:9000")
    assert seen()[1].startswith("http://[::1]:9000/#login=")


def test_the_configured_address_is_in_the_link(seen, served, home):
    (home / "config.toml").write_text('[page]\naddress = "https://agent.example.com/agent/"\n')
    assert seen()[1].startswith("https://agent.example.com/agent/#login=")
    (home / "config.toml").write_text('[page]\naddress = "http://192.168.1.5:8742"\n')
    assert "not encrypted" in seen()[2]


def test_a_qr_code_is_a_square_and_says_if_a_phone_cannot_reach_it(seen, served):
    status, out, err = seen("--qr")
    _link, *rows = out.splitlines()
    assert status == 0 and {len(row) for row in rows} == {len(rows[0])} and set("".join(rows)) <= set("█▀▄ ")
    assert len(rows[0]) in (2 * len(rows), 2 * len(rows) - 1) and "phone cannot reach" in err


def test_browsers_are_listed_and_logged_out(seen, home):
    assert "No browser is logged in" in seen("list")[1]
    one, two = add_browser(home, "Laptop"), add_browser(home, "Phone", "read")
    table = seen("list")[1]
    assert one.id in table and "Laptop" in table and "30 d without use" in table
    assert {each["name"]: each["scope"] for each in json.loads(seen("list", "--json")[1])} == {
        "Laptop": "admin",
        "Phone": "read",
    }
    assert seen("revoke", "laptop")[:2] == (0, "Laptop was logged out.\n")
    assert seen("revoke", two.id[:8])[:2] == (0, "Phone was logged out.\n")
    add_browser(home, "a"), add_browser(home, "b")
    assert seen("revoke", "--all")[:2] == (0, "2 browsers logged out.\n")


def test_a_name_of_two_browsers_is_not_enough(seen, home):
    add_browser(home, "Laptop"), add_browser(home, "Laptop")
    status, _, err = seen("revoke", "Laptop")
    assert status == 2 and "matches 2 browsers" in err


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (("revoke",), "one BROWSER"),
        (("revoke", "x", "--all"), "one BROWSER"),
        (("revoke", "x"), "unknown browser 'x'"),
        (("open",), "unknown action"),
        (("--scope", "run"), "scope"),
    ],
)
def test_invalid_options_are_reported(seen, words, why):
    status, out, err = seen(*words)
    assert (status, out) == (2, "") and why in err


@pytest.mark.parametrize(
    ("setting", "why"),
    [
        ('address = "agent.example.com"', "page.address"),
        ('address = "https://h/a;b"', "letters, digits"),
        ('address = "https://h/?x=1"', "query"),
        ('trusted_proxies = ["proxy"]', "give addresses or networks"),
    ],
)
def test_invalid_settings_are_named(seen, home, setting, why):
    (home / "config.toml").write_text(f"[page]\n{setting}\n")
    status, _, err = seen()
    assert status == 2 and "config.toml" in err and why in err


def test_a_key_cannot_be_called_like_the_browsers(home, capsys):
    assert main(["serve", "key", "add", "page"]) == 2
    assert "browsers" in capsys.readouterr().err


def test_a_conversation_is_written_as_one_file_and_shared_by_a_link_that_can_be_ended(home, seen, served, tmp_path):
    async def talk():
        async with open_store(home) as store:
            place = Address("terminal", "work")
            await store.turns.accept(Inbound("1", place, "owner", "Will it rain?", workdir="/secret/folder"))
            turn = await store.turns.claim_next(place.key)
            await store.turns.record(turn, Said(user("Will it rain?")))
            await store.turns.record(turn, Said(assistant(Text("Yes <b>today</b>."))))
            await store.turns.finish(turn, "answered", "")

    asyncio.run(talk())
    file = tmp_path / "rain.html"
    assert seen("share", "Will it rain?", "--file", str(file)) == (0, f"Written to {file}.\n", "")
    page = file.read_text()
    assert "Yes &lt;b&gt;today&lt;/b&gt;." in page and "/secret/folder" not in page
    status, link, note = seen("share", "Will it rain?", "--days", "3")
    assert status == 0 and re.fullmatch(r"http://127.0.0.1:8742/shared/[\w-]{43}\n", link)
    assert "for 3 d" in note
    (shared,) = json.loads(seen("shares", "--json")[1])
    assert link.strip().rpartition("/")[2] not in json.dumps(shared)
    assert seen("unshare", shared["id"])[0] == 0
    assert seen("unshare", shared["id"])[0] == 2
    assert "No conversation is shared" in seen("shares")[1]


def test_a_link_needs_a_server_and_a_file_does_not(home, seen):
    status, _, why = seen("share", "x")
    assert status == 1 and "--file" in why
    assert seen("share", "x", "--days", "0")[0] == 2
