"""Several gateways on one store: one receives, each sends what it answers, and the others continue after a death."""

import asyncio
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial
from pathlib import Path

import pytest
from msgspec import structs

from alipes.gateway.platform_state import SharedStates
from alipes.gateway.policy import PlatformPolicy
from alipes.kernel.conversations import denial_reason
from alipes.kernel.messages import Image, ToolCall
from alipes.kernel.outbox import Media, Outbound, lane
from alipes.kernel.platform import ReceivedFile
from alipes.kernel.ports import ToolSpec
from alipes.kernel.turns import Address
from alipes.plugins.dispatch import Hooks
from alipes.plugins.interruption.attribution import TURN
from alipes.plugins.owner import CORE
from alipes.plugins.specs import Verdict
from alipes.runtime.blobs.chat_files import ChatFiles
from alipes.runtime.blobs.folder import FolderBlobs
from alipes.store.postgres.store import ClusterLimits
from alipes.testing.scripted_provider import ScriptedProvider
from alipes.tools.clarify import Clarify
from tests.world.environment import LIMIT_S
from tests.world.fake_platform import TALENTS, FakePlatform
from tests.world.gateway_harness import make_message, open_gateway
from tests.world.postgres_server import LEASE_S, open_postgres_store, postgres_server
from tests.world.session_harness import Running, inbound
from tests.world.wait import until

ALONE = structs.replace(TALENTS, sends_alone=True)
RECEIVER, RUNNER = frozenset({"listen", "web"}), frozenset({"listen", "work", "web"})
ME = Address("test", "me")
OWNER = PlatformPolicy(allow=("me",), owners=("me",), busy="queue", progress="off")


@pytest.fixture(scope="session", autouse=True)
def server():
    """Started before the first test, so that it does not count as left over by one."""
    return postgres_server()


class WorkerPlatform(FakePlatform):
    """The messenger as one worker sees it: the chats are those of `chat`, the calls its own."""

    def __init__(self, chat: FakePlatform, talents=ALONE):
        super().__init__(talents=talents)
        self.bubbles, self.faults, self._ids, self._changed = chat.bubbles, chat.faults, chat._ids, chat._changed
        self.connected.set()
        self.receives = asyncio.Event()

    async def listen(self, take, tell):
        self.receives.set()
        try:
            await super().listen(take, tell)
        finally:
            self.receives.clear()

    def calls(self, verb):
        return [text for name, _, text in self.log if name == verb]


class Hand:
    """A tool whose calls need approval."""

    spec = ToolSpec("hand", "", {"type": "object", "properties": {"command": {"type": "string"}}})

    def __init__(self):
        self.ran = list[str]()

    async def run(self, args, act):
        self.ran.append(args["command"])
        return "done"


class Curious(Clarify):
    """Asks as alipes does."""

    def __init__(self):
        super().__init__(self._put)
        self.sessions = None

    async def _put(self, question, choices):
        reply = await self.sessions.questions.ask_question(TURN.get(), question, choices, LIMIT_S)
        return None if reply is None else reply.text


@asynccontextmanager
async def open_worker(home, chat, *script, roles=RUNNER, talents=ALONE, rules=None, **more):
    """A worker of the cluster of `home`. Every call of `hand` needs approval."""
    hand, clarify, hooks = Hand(), Curious(), Hooks()

    async def before_tool(call, turn):
        if call.name != "hand":
            return None
        word = await g.sessions.questions.ask_approval(call, "explodes", turn)
        return Verdict("deny", f"not run: {denial_reason(word)}") if denial_reason(word) else None

    hooks.add(CORE, before_tool, patient=True)
    more = {
        "messenger": WorkerPlatform(chat, talents),
        "opener": partial(open_postgres_store, limits=ClusterLimits(roles=roles, lease_s=LEASE_S)),
        "manners": OWNER,
        **more,
    }
    provider = ScriptedProvider(script)
    async with open_gateway(home, provider, hand, clarify, hooks=hooks, rules=rules, **more) as g:
        g.hand, g.provider, clarify.sessions = hand, provider, g.sessions
        yield g


@asynccontextmanager
async def open_pair(home, *script, talents=ALONE, rules=None):
    """The worker that receives, which runs no turns, and the one that runs them."""
    chat = FakePlatform(talents=talents)
    async with open_worker(home, chat, roles=RECEIVER, talents=talents, rules=rules) as receiver:
        await wait(receiver.messenger.receives)
        async with open_worker(home, chat, *script, talents=talents, rules=rules) as runner:
            await wait(receiver.messenger.receives)
            yield receiver, runner


async def wait(event):
    async with asyncio.timeout(LIMIT_S):
        await event.wait()


async def receive(g, text="", **more):
    """As from the messenger, which only the receiving worker listens to."""
    await g.messenger.take(make_message(text, **more))


def picture(n):
    return {"images": (Image("image/png", bytes([n])),), "files": (ReceivedFile(f"/tmp/{n}.png", "image", f"{n}.png"),)}


async def until_asked(g, text):
    """The message with a question, once it was sent."""

    def found():
        return [each for each in g.messenger.bubbles if text in each.text and not each.gone]

    async with asyncio.timeout(LIMIT_S):
        await g.messenger.until(found)
    return found()[0]


def button(bubble, label):
    return next(each.data for each in bubble.piece.buttons if each.label == label)


async def test_one_worker_receives_and_the_one_that_runs_the_turn_answers_once(tmp_path):
    async with open_pair(tmp_path, "hi", "again") as (receiver, runner):
        assert not runner.messenger.receives.is_set()
        assert [g.gateway.states()[0].receiving for g in (receiver, runner)] == [True, False]
        await receive(receiver, "hello", id="m1")
        await receiver.messenger.until_said("hi")
        await receive(receiver, "hello", id="m1")
        await receive(receiver, "more", id="m2")
        await receiver.messenger.until_said("hi", "again")
        await runner.quiet()
        await receiver.quiet()
        assert sorted(runner.messenger.calls("send") + receiver.messenger.calls("send")) == ["again", "hi"]
        assert len(runner.provider.asked) == 2


async def test_the_next_worker_receives_when_the_first_leaves(tmp_path):
    chat = FakePlatform()
    async with AsyncExitStack() as first, open_worker(tmp_path, chat, "here") as other:
        leader = await first.enter_async_context(open_worker(tmp_path, chat))
        await wait(other.messenger.receives)
        follower, leader = leader, other
        assert not follower.messenger.receives.is_set()
        await first.aclose()
        assert leader.messenger.receives.is_set(), "a worker that left did not disturb it"
    async with AsyncExitStack() as first:
        leader = await first.enter_async_context(open_worker(tmp_path, chat))
        await wait(leader.messenger.receives)
        async with open_worker(tmp_path, chat, "here") as other:
            await first.aclose()
            await wait(other.messenger.receives)
            await receive(other, "hello")
            await chat.until_said("here")


async def test_an_album_that_had_begun_is_complete_at_the_next_receiver(tmp_path):
    chat, rules = FakePlatform(), {"batch_window": 60.0}
    async with AsyncExitStack() as first:
        leader = await first.enter_async_context(open_worker(tmp_path, chat, rules=rules))
        await wait(leader.messenger.receives)
        async with open_worker(tmp_path, chat, "nice") as other:
            await receive(leader, "look", id="p1", album="a", **picture(1))
            await receive(leader, "", id="p2", album="a", **picture(2))
            await first.aclose()
            await wait(other.messenger.receives)
            await receive(other, "", id="p3", album="a", **picture(3))
            await other.messenger.until_said("nice")
            assert len(other.provider.asked[-1].messages[-1].parts) == 4


async def test_a_button_answers_a_question_of_another_worker(tmp_path):
    async with open_pair(tmp_path, ToolCall("c1", "hand", {"command": "x"}), "ok") as (receiver, runner):
        await receive(receiver, "go")
        bubble = await until_asked(receiver, "Approve?")
        await receive(receiver, pressed=button(bubble, "Yes"))
        await receiver.messenger.until(lambda: "ok" in receiver.messenger.said())
        assert runner.hand.ran == ["x"]
        await receiver.messenger.until(lambda: "Approved." in bubble.text)


async def test_a_word_answers_a_question_of_another_worker(tmp_path):
    async with open_pair(tmp_path, ToolCall("c1", "hand", {"command": "x"}), "ok") as (receiver, runner):
        await receive(receiver, "go")
        await until_asked(receiver, "Approve?")
        await receive(receiver, "no")
        await receiver.messenger.until(lambda: "ok" in receiver.messenger.said())
        assert runner.hand.ran == []


async def test_a_button_at_a_third_worker_answers_too(tmp_path):
    async with open_pair(tmp_path, ToolCall("c1", "hand", {"command": "x"}), "ok") as (receiver, runner):
        async with open_worker(tmp_path, receiver.messenger, roles=RECEIVER) as third:
            await receive(receiver, "go")
            bubble = await until_asked(receiver, "Approve?")
            await third.take(pressed=button(bubble, "Yes"))
            await receiver.messenger.until(lambda: "ok" in receiver.messenger.said())
            assert runner.hand.ran == ["x"]


@pytest.mark.parametrize("by_button", [True, False])
async def test_a_clarification_of_another_worker_is_answered_there(tmp_path, by_button):
    ask = ToolCall("c1", "clarify", {"question": "Which?", "choices": ["red", "blue"]})
    async with open_pair(tmp_path, ask, "thanks") as (receiver, runner):
        await receive(receiver, "paint it")
        bubble = await until_asked(receiver, "Which?")
        await (receive(receiver, pressed=button(bubble, "blue")) if by_button else receive(receiver, "2"))
        await receiver.messenger.until(lambda: "thanks" in receiver.messenger.said())
        assert runner.provider.asked[-1].messages[-1].parts[0].text.endswith(": blue")


async def test_a_platform_that_sends_only_where_it_receives_is_served_by_the_receiver(tmp_path):
    async with open_pair(tmp_path, "hi", "again", talents=TALENTS) as (receiver, runner):
        await receive(receiver, "hello")
        await receiver.messenger.until_said("hi")
        await receive(receiver, "hello")
        await receiver.messenger.until_said("hi", "again")
        assert runner.messenger.calls("send") == []
        assert runner.gateway.states()[0].condition == "broken"


async def test_deliveries_of_a_dead_worker_are_sent_again_as_uncertain_and_those_of_a_living_one_are_not(tmp_path):
    chat, you = FakePlatform(), Address("test", "you")
    async with AsyncExitStack() as doomed, open_postgres_store(tmp_path) as living:
        dying = await doomed.enter_async_context(open_postgres_store(tmp_path))
        await dying.outbox.enqueue(Outbound("a", ME, "a"), Outbound("b", ME, "b"))
        await dying.outbox.mark_sending(await dying.outbox.head(lane(ME)))
        await living.outbox.enqueue(Outbound("c", you, "c"), Outbound("d", you, "d"))
        await living.outbox.mark_sending(await living.outbox.head(lane(you)))
        async with open_worker(tmp_path, chat) as g:
            await wait(g.messenger.receives)
            await g.gateway.delivery.wait_idle()
            assert chat.bubbles == []
            await doomed.aclose()
            await chat.until_said("a", "b")
            assert (await g.store.outbox.find("a")).uncertain
            assert not (await g.store.outbox.find("b")).uncertain
            assert (await g.store.outbox.find("c")).state == "sending"
            assert chat.said("you") == []


async def test_two_workers_that_recover_send_an_interrupted_message_once(tmp_path):
    chat, places = FakePlatform(), [Address("test", f"chat{n}") for n in range(8)]
    async with AsyncExitStack() as doomed:
        dying = await doomed.enter_async_context(open_postgres_store(tmp_path))
        for place in places:
            await dying.outbox.enqueue(Outbound(f"a{place.chat}", place, "a"), Outbound(f"b{place.chat}", place, "b"))
            await dying.outbox.mark_sending(await dying.outbox.head(lane(place)))
        async with open_worker(tmp_path, chat) as one, open_worker(tmp_path, chat) as other:
            await doomed.aclose()
            for place in places:
                await chat.until_said("a", "b", chat=place.chat)
            await one.gateway.delivery.wait_idle()
            await other.gateway.delivery.wait_idle()
            assert len(chat.bubbles) == 16


async def test_an_unsent_question_of_a_dead_worker_expires_and_one_of_a_living_worker_stays(tmp_path):
    async with AsyncExitStack() as doomed, open_postgres_store(tmp_path) as store:
        dying = await doomed.enter_async_context(open_postgres_store(tmp_path))
        async with open_postgres_store(tmp_path) as living:
            await dying.outbox.enqueue(Outbound("a", ME, "a", fleeting=True))
            await living.outbox.enqueue(Outbound("b", ME, "b", fleeting=True))
            await store.outbox.enqueue(Outbound("c", ME, "c", fleeting=True))
            assert await store.outbox.expire_fleeting("test") == 0
            await doomed.aclose()
            assert await store.outbox.expire_fleeting("test") == 1
            states = {each.outbound.id: each.state for each in await store.outbox.list_deliveries()}
            assert states == {"a": "expired", "b": "queued", "c": "queued"}


@pytest.mark.parametrize("talents", [ALONE, TALENTS])
async def test_an_unfinished_answer_is_shown_in_one_message(tmp_path, talents):
    more = asyncio.Event()
    async with open_pair(tmp_path, ("one ", more, "two"), talents=talents) as (receiver, runner):
        await receive(receiver, "count")
        await receiver.messenger.until_said("one …")
        more.set()
        await receiver.messenger.until_said("one two")
        await runner.quiet()
        await receiver.quiet()
        assert len(receiver.messenger.bubbles) == 1


async def test_a_turn_of_a_worker_that_left_is_answered_once_by_another(tmp_path):
    chat, never = FakePlatform(), asyncio.Event()
    async with open_worker(tmp_path, chat, roles=RECEIVER) as receiver, AsyncExitStack() as first:
        await wait(receiver.messenger.receives)
        await first.enter_async_context(open_worker(tmp_path, chat, ("one ", never)))
        await receive(receiver, "count")
        await receiver.messenger.until_said("one …")
        async with open_worker(tmp_path, chat, "one two") as other:
            await first.aclose()
            await receiver.messenger.until(lambda: "one two" in receiver.messenger.said())
            await other.quiet()
            assert [text for text in receiver.messenger.said() if "one" in text] == ["one two"]


async def test_state_files_arrive_at_the_next_receiver(tmp_path):
    chat, here, there = FakePlatform(), tmp_path / "here", tmp_path / "there"
    async with AsyncExitStack() as first:
        leader = await first.enter_async_context(open_worker(tmp_path, chat, rules={"files": str(here)}))
        await wait(leader.messenger.receives)
        async with open_worker(tmp_path, chat, rules={"files": str(there)}) as other:
            (here / "test").mkdir(parents=True)
            (here / "test" / "seen.json").write_text("[7]")
            (here / "test" / "keys.db").write_text("secret")
            await first.aclose()
            await wait(other.messenger.receives)
            assert (there / "test" / "seen.json").read_text() == "[7]"
            assert not (there / "test" / "keys.db").exists()


async def test_one_worker_at_a_time_runs_the_schedules(tmp_path):
    async with open_postgres_store(tmp_path) as one, open_postgres_store(tmp_path) as other:
        running: list[str] = []

        async def work(name):
            running.append(name)
            await asyncio.Event().wait()

        async with asyncio.TaskGroup() as group:
            tasks = {
                store.host: group.create_task(store.leaders.lead("schedules", partial(work, store.host)))
                for store in (one, other)
            }
            await until(lambda: running)
            tasks[running[0]].cancel()
            await until(lambda: len(running) == 2)
            assert sorted(running) == sorted([one.host, other.host])
            tasks[running[1]].cancel()


async def test_a_session_with_background_processes_stays_at_its_worker(tmp_path):
    chat, running = FakePlatform(), ["p1 (make serve)"]
    work = Running(lambda: "".join(running))
    async with (
        open_worker(tmp_path, chat, "one", "two", "three", background=work) as first,
        open_worker(tmp_path, chat, "elsewhere") as other,
    ):
        await first.take("a")
        await chat.until_said("one")
        await first.sessions.wait_idle()
        assert await other.store.turns.holder(ME.key) == first.store.host
        await other.take("b")
        await chat.until_said("one", "two")
        await first.sessions.wait_idle()
        running.clear()
        await other.take("c")
        await chat.until_said("one", "two", "three")
        await first.sessions.wait_idle()
        assert await other.store.turns.holder(ME.key) is None


async def test_a_conversation_is_informed_once_which_background_processes_were_lost(tmp_path):
    chat = FakePlatform()
    async with AsyncExitStack() as doomed, open_worker(tmp_path, chat, "one", "two", "three") as g:
        await g.take("a")
        await chat.until_said("one")
        await g.sessions.wait_idle()
        dying = await doomed.enter_async_context(open_postgres_store(tmp_path))
        await dying.turns.accept(inbound("b", "b"))
        turn = await dying.turns.claim_next(ME.key)
        await dying.background_processes.add(turn.session, "p1", "make serve")
        await doomed.aclose()
        await chat.until_said("one", "two")
        await g.take("c")
        await chat.until_said("one", "two", "three")
        notices = [each.text for each in g.provider.asked[-1].messages if each.role == "notice"]
        assert len(notices) == 1 and "p1 “make serve”" in notices[0]


def make_files(tmp_path, worker):
    """The files of one worker, whose home no other can read."""
    store = FolderBlobs(tmp_path / "store", max_bytes=1000)
    return ChatFiles(tmp_path / worker / "blobs", store, max_bytes=1000, cache_bytes=10_000)


async def test_a_file_of_another_worker_is_sent_from_the_file_store(tmp_path):
    chat, path = FakePlatform(), tmp_path / "plan.txt"
    path.write_text("plan")
    async with (
        open_worker(tmp_path, chat, chat_files=make_files(tmp_path, "here")) as g,
        open_postgres_store(tmp_path) as other,
    ):
        await wait(g.messenger.receives)
        sent = Outbound("f", ME, media=(Media(str(path), "file", "plan.txt"),))
        shared = await make_files(tmp_path, "there").share_outbound((sent,))
        path.unlink()
        await other.outbox.enqueue(*shared)
        await chat.until_said("<file plan.txt>")
        assert Path(chat.bubbles[0].piece.media.path).read_text() == "plan"
        assert Path(chat.bubbles[0].piece.media.path).is_relative_to(tmp_path / "here")


async def test_a_file_that_one_worker_received_is_read_by_another(tmp_path):
    chat, path = FakePlatform(), tmp_path / "note.txt"
    path.write_text("plan")
    file = ReceivedFile(str(path), "file", "note.txt")
    async with (
        open_worker(tmp_path, chat, roles=RECEIVER, chat_files=make_files(tmp_path, "home")) as receiver,
        open_worker(tmp_path, chat, "seen", chat_files=make_files(tmp_path, "home")) as runner,
    ):
        await receiver.take("look", files=(file,))
        await chat.until_said("seen")
        copies = tmp_path / "home" / "blobs"
        assert str(copies) in runner.provider.asked[-1].messages[-1].text
        for copy in copies.iterdir():
            copy.unlink()
        await runner.chat_files.fetch_named(runner.provider.asked[-1].messages[-1].text)
        assert [each.read_text() for each in copies.iterdir()] == ["plan"]


class StatesThatHang:
    """The first save never ends."""

    def __init__(self):
        self.began, self.files = asyncio.Event(), {}

    async def load(self, platform):
        return {}

    async def save(self, platform, name, data):
        if not self.began.is_set():
            self.began.set()
            await asyncio.Event().wait()
        self.files[name] = data


async def test_a_state_file_whose_save_was_cancelled_is_saved_at_the_end(tmp_path):
    states = StatesThatHang()
    (tmp_path / "test").mkdir()
    async with SharedStates(states, str(tmp_path)).share("test"):
        (tmp_path / "test" / "seen.json").write_text("[7]")
        await wait(states.began)
    assert states.files == {"seen.json": b"[7]"}
