"""Logging in to a homeserver, losing it, and missing nothing that was said meanwhile."""

import asyncio
import json
import sys

import pytest

from alipes.kernel.errors import ConfigError, DeliveryError
from alipes.kernel.models import Secret
from alipes.kernel.platform import Piece
from alipes.platforms.matrix.settings import MatrixSettings, open_matrix
from alipes.runtime.http.clients import ClientScope
from alipes.tools.common import Places
from tests.world.ears import Ears
from tests.world.matrix_world import homeserver, matrix_world  # noqa: F401

pytestmark = [pytest.mark.deadline(60), pytest.mark.usefixtures("homeserver")]


def login(world):
    return json.loads((world.folder / "login.key").read_bytes())


async def test_a_password_makes_a_token_once_and_a_lost_login_is_made_anew_for_the_same_device(tmp_path):
    async with matrix_world(tmp_path / "matrix") as world:
        async with world.listening(Ears()):
            first = login(world)
            hidden = [path for path in world.folder.iterdir() if path.is_file() and path.name != "heard.json"]
            places = Places(home=str(tmp_path), own=str(tmp_path))
            assert {path.name for path in hidden} >= {"login.key", "signing.key", "keys.db", "keys.db-wal"}
            assert {places.secrecy(str(path)) for path in hidden} == {"ours"}  # no tool shows them to a model
        async with world.listening(Ears(), password=Secret("not asked for")):
            assert login(world) == first
        assert sum(path.endswith("/login") for _, path in world.gate.calls) == 1
        broken = json.dumps({**first, "token": "syt_unknown"})
        (world.folder / "login.key").write_text(broken)
        with pytest.raises(DeliveryError, match="log in anew"):
            async with world.listening(Ears()):
                pass
        async with world.listening(Ears()):
            assert login(world)["device"] == first["device"] and login(world)["token"] != first["token"]
        assert (world.folder / "login.key").stat().st_mode & 0o777 == 0o600


async def test_a_token_is_used_as_it_is_and_kept_nowhere(tmp_path):
    ears = Ears()
    async with matrix_world(tmp_path / "matrix") as world:
        ada = await world.town.person("ada")
        async with world.listening(ears, token=Secret(world.us.token), password=Secret()):
            room = await ada.room(world.us, direct=True)
            await ada.say(room, "hello")
            await ears.until(lambda: ears.texts == ["hello"])
        assert not (world.folder / "login.key").exists()
        for path in world.folder.iterdir():
            assert world.us.token.encode() not in path.read_bytes()


async def test_a_login_that_cannot_work_says_what_to_change(tmp_path):
    async with matrix_world(tmp_path / "matrix") as world:
        ada = await world.town.person("ada")
        for more, why in (
            ({"password": Secret("wrong")}, "does not let"),
            ({"token": Secret("syt_wrong")}, "does not know the token"),
            ({"token": Secret(ada.token)}, f"belongs to {ada.id}"),
            ({"base_url": f"{world.gate.url}/nowhere"}, "no Matrix homeserver at"),
            ({"base_url": f"{world.gate.url}/nowhere", "token": Secret(ada.token)}, "well-known"),
        ):
            with pytest.raises(ConfigError, match=why) as told:
                async with world.listening(Ears(), **more):
                    pass
            assert "wrong" not in str(told.value) and ada.token not in str(told.value)


async def test_settings_that_are_missing_and_a_library_that_is_missing_are_told(tmp_path, monkeypatch):
    async with ClientScope() as scope:
        usual = {"folder": tmp_path, "base_url": "http://127.0.0.1:1"}
        with pytest.raises(ConfigError, match=r"matrix\.user"):
            open_matrix(MatrixSettings(**usual, user="alipes", password=Secret("x")), scope)
        with pytest.raises(ConfigError, match="token or a password"):
            open_matrix(MatrixSettings(**usual, user="@alipes:x"), scope)
        for name in [name for name in sys.modules if name.startswith("alipes.platforms.matrix.settings.")]:
            monkeypatch.delitem(sys.modules, name)
        monkeypatch.setitem(sys.modules, "nio", None)
        with pytest.raises(ConfigError, match=r"alipes\[matrix\]"):
            open_matrix(MatrixSettings(**usual, user="@alipes:x", password=Secret("x")), scope)


async def test_keys_that_were_lost_make_us_another_device(tmp_path):
    async with matrix_world(tmp_path / "matrix") as world:
        async with world.listening(Ears()):
            first = login(world)
        for path in world.folder.glob("keys.db*"):
            path.unlink()
        with pytest.raises(DeliveryError, match="as another"):
            async with world.listening(Ears()):
                pass
        async with world.listening(Ears()):
            assert login(world)["device"] != first["device"]


async def test_nothing_is_behind_us_before_it_is_taken(tmp_path):
    """Cut off while one message is being taken: it comes again, and what was taken does not."""
    ears, reached = Ears(), asyncio.Event()

    async def before(arrival):
        if arrival.text == "two":
            reached.set()
            await asyncio.Event().wait()

    async with matrix_world(tmp_path / "matrix") as world:
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
        again = Ears()
        async with world.listening(again):
            await again.until(lambda: len(again.arrivals) == 2)
        assert sorted(again.texts) == ["three", "two"]  # the store knows that it has the third


async def test_a_long_absence_is_read_from_its_beginning_in_order(tmp_path):
    ears = Ears()
    async with matrix_world(tmp_path / "matrix") as world:
        ada = await world.town.person("ada")
        async with world.listening(ears):
            room = await ada.room(world.us, direct=True)
            await ada.say(room, "hello")
            await ears.until(lambda: ears.arrivals)
        texts = [f"message {number}" for number in range(60)]
        for text in texts:
            await ada.say(room, text)
        again = Ears()
        async with world.listening(again):
            await again.until(lambda: len(again.arrivals) >= 60)
        assert again.texts == texts


async def test_a_place_that_the_homeserver_does_not_know_is_begun_anew(tmp_path):
    async with matrix_world(tmp_path / "matrix") as world:
        world.folder.mkdir()
        heard = {"user": world.us.id, "since": "nonsense", "unread": []}
        (world.folder / "heard.json").write_text(json.dumps(heard))
        ears = Ears()
        async with world.listening(ears):
            assert ears.states[0][0] == "broken"
        assert json.loads((world.folder / "heard.json").read_bytes())["since"] != "nonsense"


async def test_a_dead_connection_is_noticed_and_repaired(tmp_path):
    ears = Ears()
    async with matrix_world(tmp_path / "matrix") as world, world.listening(ears, poll=1.0, patience=1.0):
        ada = await world.town.person("ada")
        room = await ada.room(world.us, direct=True)
        world.gate.shut = True
        world.gate.cut()
        await ears.until(lambda: ears.states[-1][0] == "broken")
        seen = len(ears.states)
        await ears.until(lambda: "in time" in ears.states[-1][1])  # taken, and never answered
        world.gate.shut = False
        world.gate.cut()
        await ada.say(room, "are you there?")
        await ears.until(lambda: ears.ready and ears.texts == ["are you there?"])
        assert len(ears.states) > seen


async def test_a_message_waits_until_what_it_answers_could_be_asked_for(tmp_path):
    ears = Ears()
    async with matrix_world(tmp_path / "matrix") as world:
        ada = await world.town.person("ada")
        async with world.listening(ears) as platform:
            room = await ada.room(world.us, direct=True)
            await ada.say(room, "hello")
            await ears.until(lambda: ears.arrivals)
            where = ears.arrivals[0].address
            ours = await platform.send(where, Piece(text="I sa …"))
            await platform.edit(where, ours, Piece(text="I said this"))
            await ada.say(room, "how?", **{"m.relates_to": {"m.in_reply_to": {"event_id": ours}}})
            await ears.until(lambda: len(ears.arrivals) == 2)
            assert ears.arrivals[1].quoted == "Alipes: I said this"
        again = Ears()
        async with world.listening(again):
            world.gate.fault("limit", "/event/", times=1, retry_ms=50)
            await ada.say(room, "why?", **{"m.relates_to": {"m.in_reply_to": {"event_id": ours}}})
            await again.until(lambda: again.arrivals)
            assert again.arrivals[0].quoted == "Alipes: I said this"
