"""Named keys in a real store, and the door that the settings describe."""

import asyncio

import pytest

from alipes.cli.serve.api_keys import check_operator_key, ensure_operator_key, key_finder, make_host_rules
from alipes.config.loader import load_settings
from alipes.config.messengers import Messengers
from alipes.config.settings import ApiConfig, ServeConfig, Settings
from alipes.kernel.errors import ConfigError
from alipes.kernel.models import Secret
from alipes.platforms.telegram.settings import TelegramConfig
from alipes.runtime.redaction import SecretRegistry
from alipes.store.sql.api_keys import ApiKeyStore
from alipes.store.sqlite.store import open_store
from alipes.web.auth import OPERATOR, Authenticator, KeyHolder, WrongKeyDelay, hash_key
from alipes.web.endpoint import Caller, HttpProblem


async def test_a_named_key_opens_what_its_scope_says_until_it_is_too_old_or_revoked(tmp_path):
    now = 1000.0
    async with open_store(tmp_path) as store:
        callers = ApiKeyStore(store.database, clock=lambda: now)
        assert await callers.add("ci", hash_key("one"), "run", lifetime_s=60.0, rate=5)
        assert await callers.add("reader", hash_key("two"), "read")
        assert not await callers.add("ci", hash_key("three"), "admin"), "the name is taken"
        keys = Authenticator("own", key_finder(callers))
        known = await keys.authenticate("Bearer one")
        assert known is not None and known.rate == 5
        assert known.caller == Caller("ci", frozenset({"run"}))
        assert (await keys.authenticate("Bearer three")) is None
        assert (await keys.authenticate("bearer own")).caller == Caller(OPERATOR, frozenset({"admin"}))
        now += 61
        assert await keys.authenticate("Bearer one") is None, "too old"
        assert [each.name for each in await callers.all()] == ["ci", "reader"]
        assert await callers.revoke("reader") and not await callers.revoke("reader")
        assert await keys.authenticate("Bearer two") is None
    content = (tmp_path / "alipes.db").read_bytes()
    assert hash_key("one") in content and b"Bearer" not in content


async def test_without_an_operators_key_none_is_known():
    for shown in ("Bearer", "Bearer ", "Bearer  ", ""):
        assert await Authenticator("").authenticate(shown) is None


def test_the_first_key_is_made_once_and_kept(tmp_path):
    made = ensure_operator_key(Settings(home=tmp_path))
    key = made.serve.key.reveal()
    assert len(key) > 30 and key in made.secrets(), "masked in what tools say"
    assert ensure_operator_key(made) is made
    assert load_settings(tmp_path, {}).serve.key.reveal() == key


def test_a_short_operators_key_is_refused(tmp_path):
    for length, fits in ((23, False), (24, True)):
        settings = Settings(home=tmp_path, serve=ServeConfig(key=Secret("k" * length)))
        if fits:
            check_operator_key(settings)
        else:
            with pytest.raises(ConfigError, match=r"ALIPES_API_KEY is too short.*`alipes serve key`"):
                check_operator_key(settings)


def test_the_door_has_the_names_of_the_settings_and_that_of_telegrams_webhook():
    telegram = TelegramConfig(mode="webhook", webhook_url="https://Bot.example.com/telegram", token=Secret("1:t"))
    settings = Settings(
        home="/home",
        serve=ServeConfig(host="0.0.0.0"),
        api=ApiConfig(hosts=("agent.example",), origins=("https://page.example",)),
        messengers=Messengers(telegram=telegram),
    )
    door = make_host_rules(settings)
    assert door.allows_host("bot.example.com") and door.allows_host("Agent.example") and not door.is_local
    assert not door.allows_host("other.example")
    polled = Settings(home="/home", messengers=Messengers(telegram=TelegramConfig(webhook_url="https://b.example")))
    assert not make_host_rules(polled).allows_host("b.example")


@pytest.mark.parametrize(
    ("line", "wrong"),
    [
        ('api.hosts = "agent.example"', "list"),
        ('api.hosts = ["https://agent.example"]', "host without a port"),
        ('api.origins = ["https://page.example/path"]', "path"),
        ('api.origins = ["page.example"]', "http"),
        ("api.rate = -1", "whole number"),
        ("api.body = 5", "from 1000"),
    ],
)
def test_wrong_settings_of_the_api_are_reported(tmp_path, line, wrong):
    (tmp_path / "config.toml").write_text(line + "\n")
    with pytest.raises(ConfigError, match=wrong):
        load_settings(tmp_path, {})


def test_the_settings_of_the_api_are_read(tmp_path):
    (tmp_path / "config.toml").write_text('[api]\nhosts = ["Agent.Example"]\nrate = 0\n')
    settings = load_settings(tmp_path, {"ALIPES_API_ORIGINS": "https://A.example, http://b.example:8080/"})
    assert settings.api.hosts == ("agent.example",) and settings.api.rate == 0
    assert settings.api.origins == ("https://a.example", "http://b.example:8080")


class Sleeps:
    def __init__(self):
        self.now, self.slept = 0.0, []

    async def sleep(self, seconds):
        self.slept.append(seconds)


async def test_answers_to_wrong_keys_are_delayed_more_and_more():
    sleeps = Sleeps()
    keys = Authenticator("own", delay=WrongKeyDelay(clock=lambda: sleeps.now, sleep=sleeps.sleep))
    for _ in range(12):
        assert await keys.authenticate("Bearer wrong", "10.0.0.1") is None
    assert sleeps.slept == [0.1, 0.2, 0.4, 0.8, 1.6, 1.6, 1.6] and keys.delay.total == 12
    assert await keys.authenticate("Bearer wrong", "10.0.0.2") is None
    assert await keys.authenticate("Bearer own", "10.0.0.1") is not None
    assert await keys.authenticate("", "10.0.0.1") is None
    assert len(sleeps.slept) == 7, "neither other peers nor valid or missing keys"
    sleeps.now += 61
    assert await keys.authenticate("Bearer wrong", "10.0.0.1") is None
    assert len(sleeps.slept) == 7, "forgotten after a minute"


async def test_the_network_of_an_ipv6_address_is_one_peer():
    sleeps = Sleeps()
    delay = WrongKeyDelay(clock=lambda: 0.0, sleep=sleeps.sleep)
    for number in range(7):
        await delay.wait(f"2001:db8::{number}")
    await delay.wait("2001:db8:0:1::1")
    assert sleeps.slept == [0.1, 0.2]


async def test_too_many_wrong_keys_at_once_are_refused_and_others_are_not_held():
    gate = asyncio.Event()

    async def hold(_seconds):
        await gate.wait()

    keys = Authenticator("own", delay=WrongKeyDelay(sleep=hold))
    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(keys.authenticate("Bearer wrong", "10.0.0.1")) for _ in range(5 + 16)]
        await asyncio.sleep(0)
        with pytest.raises(HttpProblem, match="too many wrong keys"):
            await keys.authenticate("Bearer wrong", "10.0.0.1")
        assert await keys.authenticate("Bearer own", "10.0.0.1") is not None
        gate.set()
    assert [task.result() for task in tasks] == [None] * 21


async def test_a_named_key_that_is_used_is_masked_from_then_on():
    async def find(_hash):
        return KeyHolder(Caller("ann", frozenset({"run"})))

    secrets = SecretRegistry()
    await Authenticator("", find, secrets=secrets).authenticate("Bearer alipes_named-key-0123")
    assert secrets("the key alipes_named-key-0123") == "the key ***"
