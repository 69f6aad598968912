"""Broken streams, failed model switches, clients that disconnect, and a backup of a busy store without temp space."""

import asyncio
import random
import tarfile

import pytest

from tests.e2e.program import Home
from tests.e2e.service import OWNER, open_serve
from tests.torture.homes import bot_texts, last_user_text, logged_errors, open_service, write_home
from tests.torture.trials import seeds, trials
from tests.world.model_server import Broken, Call, Calls, Cut, ModelServer, Say, Stall
from tests.world.telegram_server import TelegramServer

BROKEN_STREAMS = (
    Cut(where="head"),
    Cut("", where="text"),
    Cut("half an ans", where="text"),
    Cut("", where="call"),
    Cut("", where="call", reset=True),
    Cut("as if it were all", where="no_end"),
    Broken("half"),
)


@pytest.mark.deadline(60)
@pytest.mark.parametrize("seed", seeds(2, 20))
async def test_a_broken_stream_is_retried_and_no_tool_call_is_repeated(tmp_path, seed):
    """Once before the tool call and once after it; each time the same request is sent again."""
    rng, home, acts = random.Random(seed), Home(tmp_path / "home"), tmp_path / "acts"
    before, after = rng.sample(BROKEN_STREAMS, 2), rng.sample(BROKEN_STREAMS, 2)
    act = Calls((Call("terminal", {"command": f"echo done >> {acts}"}),))
    script = [*before[:1], act, *after[:1], Say("All is done.")]
    async with ModelServer(script) as model:
        home.use(model)
        done = await home.run("ask", "do it")
    assert done.status == 0 and done.out.rstrip().endswith("All is done."), (seed, done)
    assert acts.read_text() == "done\n" and len(model.requests) == 4, seed
    roles = [message["role"] for message in model.bodies[-1]["messages"]]
    assert roles.count("tool") == 1 and model.bodies[0]["messages"] == model.bodies[1]["messages"]


@pytest.mark.deadline(60)
async def test_a_failed_switch_keeps_the_old_model(tmp_path):
    home = Home(tmp_path / "home")
    async with ModelServer(lambda body: Say(f"{body['model']} says well")) as model, TelegramServer() as telegram:
        write_home(home, model, telegram)
        async with open_serve(home) as served:
            await served.ready()
            for wrong in ("/model nobody/knows", "/model openai/gpt-unknown", "/model test/"):
                before = len(telegram.chats.mine(OWNER))
                telegram.chats.say(wrong, chat=OWNER)
                await telegram.heard(OWNER, before + 1)
                telegram.chats.say("hello", chat=OWNER)
                await telegram.heard(OWNER, before + 2)
                assert bot_texts(telegram, OWNER)[-1] == "scripted says well", (wrong, bot_texts(telegram, OWNER))
            assert await served.left() == 0


@pytest.mark.deadline(120)
@pytest.mark.parametrize("seed", seeds(1, 5))
async def test_disconnects_and_stops_do_not_disturb_other_runs(tmp_path, seed, figures):
    rng, home = random.Random(seed), Home(tmp_path / "home")
    whole = " ".join(f"w{n}" for n in range(60))

    def reply(body):
        if not body.get("tools"):
            return Say("A title")
        return (
            Say(whole, pieces=60, delay=0.05)
            if "story" in last_user_text(body)
            else rng.choice((Stall("h"), Stall(None)))
        )

    async with ModelServer(reply) as model:
        write_home(home, model)
        async with open_service(home) as (_served, api):

            async def leave(number: int) -> None:
                for turn in range(trials(4, 40)):
                    run = await api.begin(f"stall {turn}", session=f"s{number}")
                    async with api.listening(run):
                        await asyncio.sleep(rng.uniform(0, 0.15))
                    await api.ask("POST", f"/runs/{run}/stop")

            async def listen(number: int) -> str:
                run = await api.begin("story", session=f"story{number}")
                async with api.listening(run) as listener:
                    said = [each for each in await listener.rest() if each.name == "said"]
                return said[-1].text

            async with asyncio.TaskGroup() as group:
                stories = [group.create_task(listen(number)) for number in range(4)]
                for number in range(4):
                    group.create_task(leave(number))
            assert [story.result() for story in stories] == [whole] * 4, seed
        assert logged_errors(home) == []
    figures.tried(4 * trials(4, 40))


@pytest.mark.deadline(60)
async def test_a_busy_store_is_backed_up_without_space_for_temporary_files(tmp_path):
    home, elsewhere = Home(tmp_path / "home"), Home(tmp_path / "elsewhere")
    async with ModelServer(lambda body: Say(f"answer {last_user_text(body)}")) as model:
        write_home(home, model)
        async with open_service(home) as (served, api):
            seen, over = [], asyncio.Event()

            async def talk(number: int) -> None:
                while not over.is_set():
                    text = f"{number}-{len(seen)}"
                    assert (await api.finish(await api.begin(text, session=f"s{number}")))["status"] == "answered"
                    seen.append(text)

            async with asyncio.TaskGroup() as group:
                for number in range(4):
                    group.create_task(talk(number))
                while len(seen) < 8:
                    await asyncio.sleep(0.02)
                before = list(seen)
                done = await home.run("backup", str(tmp_path / "b.tar.gz"), TMPDIR=str(tmp_path / "nowhere"))
                over.set()
            assert done.status == 0, done.err
            assert await served.left() == 0
        with tarfile.open(tmp_path / "b.tar.gz") as archive:
            assert not [each for each in archive.getnames() if each.endswith(".env")]
        done = await elsewhere.run("restore", str(tmp_path / "b.tar.gz"))
        assert done.status == 0, done.err
        (elsewhere.path / ".env").write_text("ALIPES_API_KEY=key-ann-0123456789abcdef\n")
        (elsewhere.path / ".env").chmod(0o600)
        async with open_service(elsewhere) as (_served, api):
            kept = ""
            for number in range(4):
                kept += (await api.ask("GET", f"/sessions/s{number}/messages")).text
        assert [text for text in before if f"answer {text}" not in kept] == []
