"""`alipes doctor` reports problems and fixes, and changes nothing."""

import signal
from typing import Any

import msgspec
import pytest

from tests.e2e.program import Home, read_until
from tests.world.model_server import Fail, ModelServer, Say

pytestmark = pytest.mark.deadline(40)


@pytest.fixture
def home(tmp_path):
    return Home(tmp_path / "home")


async def findings(home: Home, *words: str, **more: Any) -> tuple[int, dict[str, list[dict]]]:
    """The exit status, and the findings by topic."""
    done = await home.run("doctor", "--json", *words, **more)
    assert "Traceback" not in done.err
    sorted_: dict[str, list[dict]] = {}
    for finding in msgspec.json.decode(done.out)["findings"]:
        sorted_.setdefault(finding["about"], []).append(finding)
    return done.status, sorted_


async def test_a_fresh_machine_has_no_problems_and_nothing_is_created(home):
    done = await home.run("doctor")
    assert done.status == 0 and "No problems found." in done.out
    for about in ("python", "home", "settings", "log", "database", "embedded", "model"):
        assert f"  {about}" in done.out
    assert not home.path.exists()


async def test_a_home_in_use_is_reported_with_its_size_and_contents(home):
    await home.run("ask", "-m", "scripted", "hello")
    status, found = await findings(home)
    assert status == 0
    (database,) = found["database"]
    assert "1 conversation, 1 turn, 2 messages" in database["says"]
    assert found["home"][0]["state"] == "ok" and "private" in found["home"][0]["says"]


async def test_the_search_service_is_named_and_a_missing_key_is_a_problem(home):
    status, found = await findings(home)
    assert status == 0 and found["web"][0]["says"] == "searches with DuckDuckGo"
    home.path.mkdir(mode=0o700)
    (home.path / "config.toml").write_text('[web]\nsearxng_url = "http://127.0.0.1:1/x"\n')
    status, found = await findings(home)
    assert status == 0 and found["web"][0]["says"] == "searches with SearXNG at http://127.0.0.1:1"
    (home.path / "config.toml").write_text('[web]\nsearch = "exa"\n')
    status, found = await findings(home)
    assert status == 1 and found["web"][0]["says"] == 'web.search is "exa", but EXA_API_KEY is not set.'


async def test_invalid_settings_are_a_problem(home):
    home.path.mkdir(mode=0o700)
    (home.path / "config.toml").write_text("max_steps = 0\n")
    status, found = await findings(home)
    assert status == 1
    assert found["settings"][0]["state"] == "wrong" and "config.toml:1" in found["settings"][0]["says"]
    assert found["home"][0]["state"] == "ok"


async def test_a_damaged_database_is_found(home):
    await home.run("ask", "-m", "scripted", "hello")
    file = home.path / "alipes.db"
    data = bytearray(file.read_bytes())
    data[100:] = b"\xff" * (len(data) - 100)
    for companion in home.path.glob("alipes.db-*"):
        companion.unlink()
    file.write_bytes(data)
    status, found = await findings(home)
    assert status == 1 and found["database"][0]["state"] == "wrong"


async def test_a_home_that_others_may_read_is_a_note(home):
    home.path.mkdir(mode=0o755)
    home.path.chmod(0o755)
    status, found = await findings(home)
    assert status == 0
    assert found["home"][0]["state"] == "note" and "chmod 700" in found["home"][0]["advice"]


async def test_a_model_that_cannot_be_reached_is_found_without_asking_it(home):
    async with ModelServer([]) as server:
        home.use(server)
        status, found = await findings(home)
        assert status == 0 and found["reach"][0]["state"] == "ok"
    status, found = await findings(home)
    assert status == 1 and "is unreachable" in found["reach"][0]["says"]
    assert server.requests == []


async def test_live_asks_the_model_one_real_question(home):
    async with ModelServer([Say("ok"), Fail(401, "bad key")]) as server:
        home.use(server)
        status, found = await findings(home, "--live")
        assert status == 0 and "test/scripted" in found["answer"][0]["says"]
        status, found = await findings(home, "--live")
        assert status == 1 and found["answer"][0]["state"] == "wrong"
    assert len(server.requests) == 2


async def test_open_clients_are_listed_with_their_request_counts(home):
    async with ModelServer([Say("ok")]) as server:
        home.use(server)
        report = msgspec.json.decode((await home.run("doctor", "--json", "--live")).out)
    assert [(one["name"], one["requests"]) for one in report["clients"]] == [("test", 1)]


async def test_other_processes_and_interrupted_turns_are_reported(home):
    async with home.started("ask", "-m", "scripted", "--session", "busy", "!say begun\n!wait 100") as process:
        await read_until(process.stdout, "begun")
        _, found = await findings(home)
        assert f"pid {process.pid}" in found["processes"][0]["says"]
        assert "turns" not in found
        process.send_signal(signal.SIGKILL)
        await process.wait()
    _, found = await findings(home)
    assert "no other" in found["processes"][0]["says"]
    assert "busy" in found["turns"][0]["says"] and found["turns"][0]["state"] == "note"


async def test_a_missing_program_is_a_note(home):
    status, found = await findings(home, programs=())
    assert status == 0
    assert [finding["state"] for finding in found["programs"]] == ["note"] * 3
    assert "ripgrep" in found["programs"][0]["says"]


async def test_a_proxy_is_shown_without_its_password(home):
    _, found = await findings(home, HTTPS_PROXY="http://me:secret-word@127.0.0.1:9")
    assert "http://127.0.0.1:9" in found["proxies"][0]["says"]
    assert "secret-word" not in str(found)


async def test_a_missing_gguf_file_is_a_problem(home):
    home.path.mkdir(mode=0o700)
    (home.path / "config.toml").write_text('[embedded]\ngguf = "/nowhere.gguf"\n')
    status, _ = await findings(home)
    assert status == 1


async def test_tools_that_are_off_are_listed_with_the_reason(home):
    await home.run("ask", "-m", "scripted", "hello")
    text = '[tools]\noff = ["patch"]\n[tools.telegram]\non = ["patch"]\noff = ["terminal"]\n'
    (home.path / "config.toml").write_text(text)
    status, found = await findings(home)
    says = [each["says"] for each in found["tools"]]
    assert status == 0 and says[0].endswith("tools are on")
    assert "patch: off. tools.off in config.toml lists it." in says
    assert "image_generate: unavailable. No image model is configured: set images.model." in says
    assert "terminal: off on telegram. tools.telegram.off in config.toml lists it." in says
    assert "patch: available on telegram." in says
