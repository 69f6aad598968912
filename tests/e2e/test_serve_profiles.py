"""`alipes serve` with several profiles in one process: each answers with its own bot, model, keys and memory, and
nothing of one appears in the other."""

import signal
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

import httpx2
import pytest
from msgspec import Struct

from alipes.config.paths import PROFILES_MARK
from alipes.runtime.process_lock import find_holder
from tests.e2e.program import Home
from tests.e2e.service import OWNER, ServeProcess, open_serve, write_settings
from tests.world.model_server import Call, Calls, ModelServer, Say
from tests.world.telegram_server import TelegramServer

pytestmark = pytest.mark.deadline(40)
TOKENS = {"work": "4200000001:AAF-loopback_bot_token_of_work", "play": "4200000002:AAF-loopback_bot_token_of_play"}


class Profile(Struct):
    """One profile with its own model and messenger."""

    name: str
    home: Home
    model: ModelServer
    telegram: TelegramServer

    @property
    def canaries(self) -> dict[str, str]:
        """A text for each place where the profile keeps something."""
        places = ("env", "memory", "chat", "answer", "session", "file", "key")
        return {place: f"canary-{self.name}-{place}-0123456789" for place in places}

    @property
    def address(self) -> str:
        found = find_holder(self.home.path / "run" / "serve.claim")
        assert found is not None, f"nobody serves {self.name}"
        return found.address

    @property
    def key(self) -> str:
        lines = (self.home.path / ".env").read_text().splitlines()
        return next(line.partition("=")[2] for line in lines if line.startswith("ALIPES_API_KEY"))

    async def get(self, path: str, key: str = "") -> httpx2.Response:
        headers = {"authorization": f"Bearer {key}"} if key else {}
        async with httpx2.AsyncClient(base_url=self.address, trust_env=False) as client:
            return await client.get(path, headers=headers)

    def everything_shown(self) -> str:
        """What this profile sent to its model and its chats, and wrote to its log."""
        asked = "".join(str(each.body) for each in self.model.requests)
        called = "".join(str(each.given) for each in self.telegram.calls)
        return asked + called + (self.home.path / "logs" / "alipes.log").read_text()


@pytest.fixture
def root(tmp_path: Path) -> Home:
    return Home(tmp_path / "home")


@asynccontextmanager
async def open_profiles(root: Home) -> AsyncIterator[tuple[Profile, Profile]]:
    """Two profiles with settings, and their servers."""
    async with AsyncExitStack() as stack:
        found = []
        for name, token in TOKENS.items():
            home = Home(root.path / "profiles" / name)
            home.path.mkdir(0o700, parents=True)
            (home.path.parent / PROFILES_MARK).touch()
            model = await stack.enter_async_context(ModelServer())
            telegram = await stack.enter_async_context(TelegramServer(token))
            profile = Profile(name, home, model, telegram)
            model.script = [Say(f"Answer: {profile.canaries['answer']}")] * 9
            write_settings(home, model, telegram, log_level='"debug"')
            with (home.path / ".env").open("a") as file:
                file.write(f"PRIVATE_{name.upper()}_TOKEN={profile.canaries['env']}\n")
            (home.path / "SOUL.md").write_text(f"Remember {profile.canaries['memory']}.")
            found.append(profile)
        yield found[0], found[1]


@asynccontextmanager
async def open_both(root: Home, **more: str) -> AsyncIterator[ServeProcess]:
    async with open_serve(root, "-P", "work", "-P", "play", **more) as served:
        yield served


async def test_each_profile_answers_with_its_own_bot_and_model(root):
    async with open_profiles(root) as (work, play), open_both(root) as served:
        for profile in (work, play):
            profile.telegram.chats.say(profile.canaries["chat"], chat=OWNER)
        for profile in (work, play):
            await profile.telegram.shows(OWNER, profile.canaries["answer"])
        assert await served.left() == 0
    assert (len(work.model.requests), len(play.model.requests)) == (1, 1)


async def test_nothing_of_one_profile_appears_in_the_other(root):
    async with open_profiles(root) as (work, play):
        soul = str(work.home.path / "SOUL.md")
        spy = (
            Call("read_file", {"path": soul}, "1"),
            Call("terminal", {"command": f"cp {soul} {work.home.path}/.env ."}, "3"),
            Call("search_files", {"pattern": "canary-[w]ork", "path": str(root.path)}, "2"),
        )
        play.model.script = [Calls(spy), Say("Done.")]
        async with open_both(root, PROCESS_API_KEY="canary-of-the-environment") as served:
            work.telegram.chats.say(work.canaries["chat"], chat=OWNER)
            await work.telegram.shows(OWNER, work.canaries["answer"])
            named = await work.home.run("serve", "key", "add", "phone")
            assert named.status == 0
            play.telegram.chats.say("look around", chat=OWNER)
            await play.telegram.shows(OWNER, "Done.")
            assert await served.left() == 0
        shown = play.everything_shown()
        listed = (await play.home.run("sessions", "list", "--json")).out
        found = (await play.home.run("sessions", "search", work.canaries["chat"])).out
        keys = (await play.home.run("serve", "key", "list")).out
        people = (await play.home.run("pair", "list")).out
    for text in (shown, listed, found.replace(work.canaries["chat"], "", 1), keys, people):
        assert "canary-work" not in text
        assert "phone" not in text
    assert TOKENS["work"] not in shown and "canary-of-the-environment" not in shown
    log = (root.path / "logs" / "alipes.log").read_text()
    assert "canary" not in log and TOKENS["work"] not in log and TOKENS["play"] not in log


async def test_a_command_of_one_profile_sees_no_key_of_another_or_of_the_environment(root):
    async with open_profiles(root) as (_work, play):
        play.model.script = [Calls((Call("terminal", {"command": "env"}),)), Say("Done.")]
        async with open_both(root, PROCESS_API_KEY="canary-of-the-environment", HARMLESS="here") as served:
            play.telegram.chats.say("look at the environment", chat=OWNER)
            await play.telegram.shows(OWNER, "Done.")
            assert await served.left() == 0
    result = str(play.model.requests[1].body)
    assert "HARMLESS=here" in result and f"ALIPES_HOME={play.home.path}" in result
    assert "canary" not in result.replace(play.canaries["memory"], "") and TOKENS["work"] not in result


async def test_a_key_of_one_profile_does_not_open_the_other(root):
    async with open_profiles(root) as (work, play), open_both(root):
        assert work.address != play.address
        assert (await work.get("/v1/sessions", work.key)).status_code == 200
        assert (await work.get("/v1/sessions", play.key)).status_code == 401
        assert (await play.get("/v1/sessions", work.key)).status_code == 401
        assert (await play.get("/v1/sessions", play.key)).status_code == 200


async def test_ready_and_metrics_name_the_profile(root):
    async with open_profiles(root) as (work, play), open_both(root):
        for profile in (work, play):
            await profile.telegram.polled()
            assert (await profile.get("/ready")).json()["profile"] == profile.name
            assert f'alipes_profile{{profile="{profile.name}"}} 1' in (await profile.get("/metrics")).text


async def test_a_profile_with_wrong_settings_does_not_stop_the_others(root):
    async with open_profiles(root) as (work, play):
        (work.home.path / "config.toml").write_text("modle = 1\n")
        async with open_both(root) as served:
            play.telegram.chats.say("hello", chat=OWNER)
            await play.telegram.shows(OWNER, play.canaries["answer"])
            served.process.send_signal(signal.SIGTERM)
            _, err = await served.process.communicate()
            assert served.process.returncode == 0
        assert b"profile work is not served" in err and b"modle" in err


async def test_serve_fails_if_no_profile_can_be_opened(root):
    async with open_profiles(root) as (work, play):
        for profile in (work, play):
            (profile.home.path / "config.toml").write_text("modle = 1\n")
        done = await root.run("serve", "-P", "work", "-P", "play", "--port", "0")
    assert done.status == 2 and "no profile can be served" in done.err


async def test_two_profiles_with_the_same_bot_are_not_both_served(root):
    async with open_profiles(root) as (work, play):
        write_settings(play.home, play.model, work.telegram)
        async with open_both(root) as served:
            served.process.send_signal(signal.SIGTERM)
            _, err = await served.process.communicate()
        assert b"it has the same telegram bot as profile" in err


async def test_restart_in_a_chat_restarts_only_its_profile(root):
    async with open_profiles(root) as (work, play), open_both(root) as served:
        before = play.address
        work.telegram.chats.say("/restart", chat=OWNER)
        await work.telegram.until(lambda: len(work.telegram.of("getMe")) >= 2)
        work.telegram.chats.say("hello again", chat=OWNER)
        await work.telegram.shows(OWNER, work.canaries["answer"])
        assert play.address == before and len(play.telegram.of("getMe")) == 1
        assert served.process.returncode is None


async def test_profiles_of_the_setting_are_served_beside_the_default_one(root):
    async with open_profiles(root) as (work, play), ModelServer([Say("From the default one.")]) as model:
        async with TelegramServer("4200000003:AAF-loopback_bot_token_of_default") as telegram:
            write_settings(root, model, telegram)
            with (root.path / "config.toml").open("a") as file:
                file.write('[serve]\nprofiles = ["work"]\n')
            async with open_serve(root) as served:
                telegram.chats.say("hello", chat=OWNER)
                work.telegram.chats.say("hello", chat=OWNER)
                await telegram.shows(OWNER, "From the default one.")
                await work.telegram.shows(OWNER, work.canaries["answer"])
                assert await served.left() == 0
    assert not play.telegram.calls
