"""`alipes doctor --security` finds what weakens the home, and says how to fix it."""

import msgspec
import pytest

from tests.e2e.program import Home


@pytest.fixture
def home(tmp_path):
    made = Home(tmp_path / "home")
    made.path.mkdir(mode=0o700)
    return made


async def audit(home: Home, topic: str, config: str = "", **more: str) -> tuple[int, list[dict]]:
    """The exit status, and the findings about one topic."""
    if config:
        (home.path / "config.toml").write_text(config)
    done = await home.run("doctor", "--security", "--json", ALIPES_DEBUGGABLE="false", **more)
    assert done.out, done.err
    return done.status, [each for each in msgspec.json.decode(done.out)["findings"] if each["about"] == topic]


async def test_a_fresh_home_has_no_problems(home):
    done = await home.run("doctor", "--security")
    assert done.status == 0 and "No problems found." in done.out
    for topic in ("sandbox", "permissions", "ports", "secrets", "versions"):
        assert f"  {topic}" in done.out


@pytest.mark.parametrize("mode", [0o644, 0o640, 0o604])
async def test_an_env_file_that_others_can_read_is_a_problem(home, mode):
    (home.path / ".env").write_text("OPENAI_API_KEY=abc\n")
    (home.path / ".env").chmod(mode)
    status, [found] = await audit(home, "permissions")
    assert (status, found["state"]) == (1, "wrong")
    assert found["advice"] == f"chmod 600 {home.path / '.env'}"


async def test_a_home_that_others_can_write_is_a_problem(home):
    home.path.chmod(0o777)
    status, [found] = await audit(home, "permissions")
    assert status == 1 and found["says"] == f"{home.path} is writable by other users (mode 777)"


async def test_a_database_in_an_open_home_is_a_problem(home):
    await home.run("ask", "-m", "scripted", "hello")
    home.path.chmod(0o755)
    (home.path / "alipes.db").chmod(0o644)
    status, found = await audit(home, "permissions")
    states = {each["says"].partition(" ")[0]: each["state"] for each in found}
    assert status == 1 and states[str(home.path)] == "note" and states[str(home.path / "alipes.db")] == "wrong"


async def test_a_port_for_other_machines_without_a_key_is_a_problem(home):
    status, [found] = await audit(home, "ports", '[serve]\nhost = "0.0.0.0"\n')
    assert status == 1 and "reachable from other machines, and no API key is set" in found["says"]


async def test_a_port_for_other_machines_with_a_key_is_noted(home):
    status, [found] = await audit(home, "ports", '[serve]\nhost = "0.0.0.0"\n', ALIPES_API_KEY="k" * 40)
    assert status == 0 and found["state"] == "note" and "without TLS" in found["says"]


async def test_a_short_operator_key_is_a_problem(home):
    status, [found] = await audit(home, "keys", ALIPES_API_KEY="secret")
    assert status == 1 and "has 6 characters; at least 24 are needed" in found["says"]


async def test_a_chat_in_which_everyone_is_an_owner_is_a_problem(home):
    status, [found] = await audit(home, "access", '[telegram]\nallow = ["*"]\n', TELEGRAM_BOT_TOKEN="1:" + "a" * 30)
    assert status == 1 and "everyone can talk to the agent and is an owner" in found["says"]


async def test_a_chat_open_to_everyone_with_named_owners_is_noted(home):
    config = '[telegram]\nallow = ["*"]\nowners = ["5"]\n'
    status, [found] = await audit(home, "access", config, TELEGRAM_BOT_TOKEN="1:" + "a" * 30)
    assert status == 0 and found["state"] == "note"


async def test_a_secret_in_a_comment_of_the_configuration_is_noted(home):
    config = f"max_steps = 5  # once with sk-proj-{'a1B2' * 12}\n"
    status, [found] = await audit(home, "secrets", config)
    assert (status, found["state"]) == (0, "note")
    assert found["says"] == f"{home.path / 'config.toml'}:1 contains text that looks like a secret"


async def test_a_changed_plugin_is_a_problem(home):
    folder = home.path / "plugins" / "mine"
    folder.mkdir(parents=True)
    (folder / "__init__.py").write_text("def setup(ctx): ...\n")
    await home.run("plugins", "enable", "mine")
    (folder / "__init__.py").write_text("import os\n")
    status, found = await audit(home, "plugins")
    assert status == 1 and "mine changed since you accepted it (changed: __init__.py)" in found[0]["says"]


async def test_an_unpinned_plugin_is_noted(home):
    folder = home.path / "plugins" / "mine"
    folder.mkdir(parents=True)
    (folder / "__init__.py").write_text("def setup(ctx): ...\n")
    status, found = await audit(home, "plugins", '[plugins]\nenabled = ["mine"]\nunpinned = ["mine"]\n')
    assert status == 0 and "is loaded even if its files change" in found[0]["says"]


async def test_keys_without_an_end_that_may_do_everything_are_noted(home):
    assert (await home.run("serve", "key", "add", "ci", "--scope", "admin")).status == 0
    status, found = await audit(home, "keys")
    assert status == 0 and found[-1]["says"] == "the API key ci may do everything and never expires"


async def test_broken_settings_are_reported_in_one_sentence(home):
    (home.path / "config.toml").write_text("max_steps = 0\n")
    done = await home.run("doctor", "--security")
    assert done.status == 2 and "config.toml:1" in done.err and "Traceback" not in done.err
