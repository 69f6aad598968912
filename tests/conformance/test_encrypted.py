"""A conversation in an encrypted room: a growing answer, a question, a file, and a kill."""

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from alipes.testing.leaks import LeakCheck
from tests.conformance.conftest import OPEN_CHECKS
from tests.conformance.matrix import Matrix
from tests.conformance.scripted_model import STORY, run
from tests.world.matrix_encryption import EncryptedClient, open_encrypted_client
from tests.world.matrix_harness import homeserver  # noqa: F401
from tests.world.model_server import Call, Calls, Say
from tests.world.synapse_server import synapse


@pytest.fixture
def matrix(request: pytest.FixtureRequest, leaks: LeakCheck, tmp_path: Path) -> Iterator[Matrix]:
    with ExitStack() as stack:  # the server outlives this test, and a surface may be open beside it
        for check in (leaks, *OPEN_CHECKS):
            stack.enter_context(check.ignore_opened())
        request.getfixturevalue("homeserver")
    made = Matrix(tmp_path / "on")
    made.open()
    made.spoilt = True
    yield made
    made.close()


def test_an_encrypted_conversation(matrix: Matrix) -> None:
    matrix.run(_converse(matrix))
    matrix.spoilt = False


async def _converse(matrix: Matrix) -> None:
    guest = await matrix.town.person("guest1")
    report = matrix.workdir / "report.csv"
    write = Calls((Call("write_file", {"path": str(report), "content": "a;b\n"}),))
    command = "git push --force 2>/dev/null; touch pushed"
    async with open_encrypted_client(guest, synapse()) as ada:
        room = await ada.room(matrix.us, direct=True)
        await ada.joined(room, matrix.us.id)

        def shown() -> list[str]:
            return [post.body for post in ada.chat(room).posts.values() if post.sender == matrix.us.id]

        matrix.fake_model.answers(story=STORY, night=Say("Good night."))
        await ada.say(room, "tell me a story")
        await ada.until(lambda: shown() and STORY.begun in shown()[0])
        matrix.fake_model.advance()
        await ada.until(lambda: STORY.half in shown()[0])
        await matrix.kill()
        matrix.fake_model.release()
        await ada.say(room, "good night")
        await matrix.start()
        await ada.until(lambda: "Good night." in shown())
        await ada.until(lambda: shown() == [*matrix.resumed("tell me a story", STORY.text), "Good night."])

        matrix.fake_model.answers(run(command), write, Say(f"Here it is.\n\nMEDIA:{report}"))
        await ada.say(room, "push it")
        await ada.until(lambda: _question(ada, room, command))
        await guest.react(room, _question(ada, room, command), "Yes")
        await ada.until(lambda: "report.csv" in shown())
        assert (matrix.workdir / "pushed").exists() and "Here it is." in shown()
        file = next(post for post in ada.chat(room).posts.values() if post.body == "report.csv")
        assert await ada.fetch(file.content["file"]) == b"a;b\n"
        mine = {id for id, post in ada.chat(room).posts.items() if post.sender == matrix.us.id}
        assert mine <= ada.sealed and not ada.unread


def _question(ada: EncryptedClient, room: str, command: str) -> str:
    """The approval question, once it has buttons."""
    asked = [post for post in ada.chat(room).posts.values() if command in post.body and post.reactions]
    return asked[-1].id if asked else ""
