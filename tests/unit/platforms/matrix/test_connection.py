"""Logging in to a homeserver, losing the connection, and missing nothing."""

import asyncio
import json
import sys

import pytest

from alipes.config.settings import Settings
from alipes.kernel.errors import ConfigError, DeliveryError
from alipes.kernel.models import Secret
from alipes.kernel.platform import MessagePart
from alipes.platforms.matrix.platform import open_platform
from alipes.platforms.matrix.settings import MatrixConfig
from alipes.platforms.registry import open_messenger
from alipes.runtime.http.clients import ClientScope
from alipes.tools.common import Places
from tests.world.matrix_harness import homeserver, open_matrix_harness  # noqa: F401
from tests.world.recording_gateway import RecordingGateway

pytestmark = [pytest.mark.deadline(60), pytest.mark.usefixtures("homeserver")]


def login(world):
    return json.loads((world.folder / "login.key").read_bytes())


async def test_a_password_login_is_reused_and_repeated_for_the_same_device(tmp_path):
    async with open_matrix_harness(tmp_path / "matrix") as world:
        async with world.listening(RecordingGateway()):
            first = login(world)
            hidden = [path for path in world.folder.iterdir() if path.is_file() and path.name != "heard.json"]
            places = Places(home=str(tmp_path), alipes_home=str(tmp_path))
            assert {path.name for path in hidden} >= {"login.key", "signing.key", "keys.db", "keys.db-wal"}
            assert {places.secrecy(str(path)) for path in hidden} == {"ours"}  # no tool shows them to a model
        async with world.listening(RecordingGateway(), password=Secret("not asked for")):
            assert login(world) == first
        assert sum(path.endswith("/login") for _, path in world.gate.calls) == 1
        broken = json.dumps({**first, "token": "syt_unknown"})
        (world.folder / "login.key").write_text(broken)
        with pytest.raises(DeliveryError, match=r"logging in (again|as)"):
            async with world.listening(RecordingGateway()):
                pass
        async with world.listening(RecordingGateway()):
            assert login(world)["device"] == first["device"] and login(world)["token"] != first["token"]
        assert (world.folder / "login.key").stat().st_mode & 0o777 == 0o600


async def test_a_token_is_used_and_not_stored(tmp_path):
    ears = RecordingGateway()
    async with open_matrix_harness(tmp_path / "matrix") as world:
        ada = await world.town.person("ada")
        async with world.listening(ears, token=Secret(world.us.token), password=Secret()):
            room = await ada.room(world.us, direct=True)
            await ada.say(room, "hello")
            await ears.until(lambda: ears.texts == ["hello"])
        assert not (world.folder / "login.key").exists()
        for path in world.folder.iterdir():
            assert world.us.token.encode() not in path.read_bytes()


async def test_a_login_that_cannot_work_says_what_to_change(tmp_path):
    async with open_matrix_harness(tmp_path / "matrix") as world:
        ada = await world.town.person("ada")
        for more, why in (
            ({"password": Secret("wrong")}, "rejected the login"),
            ({"token": Secret("syt_wrong")}, "does not know the token"),
            ({"token": Secret(ada.token)}, f"belongs to {ada.id}"),
            ({"base_url": f"{world.gate.url}/nowhere"}, "no Matrix homeserver at"),
            ({"base_url": f"{world.gate.url}/nowhere", "token": Secret(ada.token)}, "well-known"),
        ):
            with pytest.raises(ConfigError, match=why) as raised:
                async with world.listening(RecordingGateway(), **more):
                    pass
            assert "wrong" not in str(raised.value) and ada.token not in str(raised.value)


async def test_missing_settings_and_a_missing_library_are_reported(tmp_path, monkeypatch):
    async with ClientScope() as scope:
        usual = {"data_folder": tmp_path, "base_url": "http://127.0.0.1:1"}
        with pytest.raises(ConfigError, match=r"matrix\.user"):
            open_platform(MatrixConfig(**usual, user="alipes", password=Secret("x")), scope)
        with pytest.raises(ConfigError, match="token or a password"):
            open_platform(MatrixConfig(**usual, user="@alipes:x"), scope)
        for name in [name for name in sys.modules if name.startswith("alipes.platforms.matrix.")]:
            monkeypatch.delitem(sys.modules, name)
        monkeypatch.setitem(sys.modules, "nio", None)
        with pytest.raises(ConfigError, match="alipes install matrix"):
            open_messenger("matrix", Settings(home=tmp_path), scope)


async def test_lost_keys_cause_a_new_device(tmp_path):
    async with open_matrix_harness(tmp_path / "matrix") as world:
        async with world.listening(RecordingGateway()):
            first = login(world)
        for path in world.folder.glob("keys.db*"):
            path.unlink()
        with pytest.raises(DeliveryError, match="as a new device"):
            async with world.listening(RecordingGateway()):
                pass
        async with world.listening(RecordingGateway()):
            assert login(world)["device"] != first["device"]


async def test_the_position_moves_only_after_delivery(tmp_path):
    """Interrupted during a delivery: that message comes again, delivered ones do not."""
    ears, reached = RecordingGateway(), asyncio.Event()

    async def before(arrival):
        if arrival.text == "two":
            reached.set()
            await asyncio.Event().wait()

    async with open_matrix_harness(tmp_path / "matrix") as world:
        ada, bob = await world.town.person("ada"), await world.town.person("bob")
        async with world.listening(ears):
            rooms = [await each.room(world.us, direct=True) for each in (ada, bob)]
            await ada.say(rooms[0], "one")
            await ears.until(lambda: ears.texts == ["one"])
            ears.before = before
            await ada.say(rooms[0], "two")
            await reached.wait()
            await bob.say(rooms[1], "three")
            await ears.until(lambda: ears.texts == ["one", "three"])
        again = RecordingGateway()
        async with world.listening(again):
            await again.until(lambda: len(again.arrivals) == 2)
        assert sorted(again.texts) == ["three", "two"]  # the store already has the third


async def test_a_long_gap_is_read_in_order(tmp_path):
    ears = RecordingGateway()
    async with open_matrix_harness(tmp_path / "matrix") as world:
        ada = await world.town.person("ada")
        async with world.listening(ears):
            room = await ada.room(world.us, direct=True)
            await ada.say(room, "hello")
            await ears.until(lambda: ears.arrivals)
        texts = [f"message {number}" for number in range(60)]
        for text in texts:
            await ada.say(room, text)
        again = RecordingGateway()
        async with world.listening(again):
            await again.until(lambda: len(again.arrivals) >= 60)
        assert again.texts == texts


async def test_an_unknown_sync_position_starts_over(tmp_path):
    async with open_matrix_harness(tmp_path / "matrix") as world:
        world.folder.mkdir()
        heard = {"user": world.us.id, "since": "nonsense", "unread": []}
        (world.folder / "heard.json").write_text(json.dumps(heard))
        ears = RecordingGateway()
        async with world.listening(ears):
            assert ears.states[0][0] == "broken"
        assert json.loads((world.folder / "heard.json").read_bytes())["since"] != "nonsense"


async def test_a_dead_connection_is_detected_and_replaced(tmp_path):
    ears = RecordingGateway()
    async with open_matrix_harness(tmp_path / "matrix") as world, world.listening(ears, poll=1.0, patience=1.0):
        ada = await world.town.person("ada")
        room = await ada.room(world.us, direct=True)
        world.gate.shut = True
        world.gate.cut()
        await ears.until(lambda: ears.states[-1][0] == "broken")
        seen = len(ears.states)
        await ears.until(lambda: "in time" in ears.states[-1][1])  # accepted and never answered
        world.gate.shut = False
        world.gate.cut()
        await ada.say(room, "are you there?")
        await ears.until(lambda: ears.ready and ears.texts == ["are you there?"])
        assert len(ears.states) > seen


async def test_a_reply_waits_until_its_original_was_requested(tmp_path):
    ears = RecordingGateway()
    async with open_matrix_harness(tmp_path / "matrix") as world:
        ada = await world.town.person("ada")
        async with world.listening(ears) as platform:
            room = await ada.room(world.us, direct=True)
            await ada.say(room, "hello")
            await ears.until(lambda: ears.arrivals)
            where = ears.arrivals[0].address
            ours = await platform.send(where, MessagePart(text="I sa …"))
            await platform.edit(where, ours, MessagePart(text="I said this"))
            await ada.say(room, "how?", **{"m.relates_to": {"m.in_reply_to": {"event_id": ours}}})
            await ears.until(lambda: len(ears.arrivals) == 2)
            assert ears.arrivals[1].quoted == "Alipes: I said this"
        again = RecordingGateway()
        async with world.listening(again):
            world.gate.fault("limit", "/event/", times=1, retry_ms=50)
            await ada.say(room, "why?", **{"m.relates_to": {"m.in_reply_to": {"event_id": ours}}})
            await again.until(lambda: again.arrivals)
            assert again.arrivals[0].quoted == "Alipes: I said this"
