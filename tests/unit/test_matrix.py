"""The Matrix platform on a real Synapse: what comes in, what goes out, and nothing left behind."""

import pytest

from alipes.kernel.platforms import Piece
from tests.world.matrix_world import Desk, matrix_world

pytestmark = pytest.mark.deadline(60)


async def test_words_come_in_and_go_out_in_a_direct_chat(tmp_path):
    desk = Desk()
    async with matrix_world(tmp_path / "matrix") as world, world.listening(desk) as platform:
        ada = await world.town.person("ada")
        room = await ada.room(world.us, direct=True)
        await ada.say(room, "hello")
        await desk.until(lambda: desk.texts == ["hello"])
        came = desk.arrivals[0]
        assert (came.sender, came.name, came.group, came.addressed) == (ada.id, "Ada", False, True)
        assert came.address.chat == room and came.address.chat_type == "dm" and not came.address.thread
        (piece,) = platform.pieces("Good **morning**.")
        sent = await platform.send(came.address, piece)
        await ada.until(lambda: sent in ada.chat(room).posts)
        post = ada.chat(room).posts[sent]
        assert (
            post.body == "Good morning."
            and post.content["formatted_body"] == "Good <strong>morning</strong>."
        )
        await platform.edit(came.address, sent, Piece(text="Good night.", plain="Good night."))
        await ada.until(lambda: post.body == "Good night.")
