"""What is owed to chats is paid: in order, once, tried again, given up; also when we die in between."""

import asyncio
import time

import pytest
from msgspec import structs

from alipes.gateway.outbound.delivery import Delivery
from alipes.gateway.platform_runner import PREPARED, Channel
from alipes.gateway.policy import Rules
from alipes.kernel.errors import DeliveryError, Gone
from alipes.kernel.outbox import Button, Media, Outbound, lane
from alipes.kernel.platform import Talents
from alipes.kernel.turns import Address
from alipes.store.outbox import SqliteOutbox
from alipes.store.store import open_store
from tests.world.messenger import TALENTS, Lost, Messenger

ME, YOU = Address("test", "me"), Address("test", "you")
REMEMBERS = Talents(remembers=True, edits=True)


def word(id, address=ME, text="", **more):
    return Outbound(id, address, text or f"text {id}", **more)


class Post:
    """A delivery that runs, on a store and a messenger."""

    def __init__(self, store, messenger, rules, clock):
        self.store, self.messenger, self.outbox = store, messenger, store.outbox
        self.channel = Channel(messenger)
        self.delivery = Delivery(store, {"test": self.channel}, rules, clock=clock, dice=lambda: 0.0)
        self._serving = None

    async def __aenter__(self):
        self._serving = asyncio.create_task(self.delivery.run())
        return self

    async def __aexit__(self, *_):
        await self.kill()

    async def kill(self):
        self._serving.cancel()
        await asyncio.gather(self._serving, return_exceptions=True)

    def ready(self):
        self.channel.tell("ready")

    async def owe(self, *outbounds):
        await self.delivery.owe(*outbounds)

    async def states(self):
        return {debt.outbound.id: debt.state for debt in await self.outbox.look()}

    async def is_now(self, id, state):
        return (await self.outbox.find(id)).state == state

    async def until(self, id, state):
        """Polled: the row is the fact."""
        deadline = time.monotonic() + 8
        while (debt := await self.outbox.find(id)) is None or debt.state != state:
            assert time.monotonic() < deadline, debt
            await asyncio.sleep(0.005)
        return debt


async def hurry(now, met):
    """Let time pass quickly until it holds."""
    deadline = time.monotonic() + 8
    while not await met():
        assert time.monotonic() < deadline
        now[0] += 61
        await asyncio.sleep(0.01)


def post(store, messenger=None, *, ready=True, clock=time.time, **rules):
    made = Post(store, messenger or Messenger(), Rules(**{"poll": 0.02, "expiry": 1e6, **rules}), clock)
    if ready:
        made.ready()
    return made


async def test_each_chat_is_paid_in_order_and_a_slow_one_keeps_nobody_else_waiting(tmp_path):
    async with open_store(tmp_path) as store:
        messenger, held = Messenger(), asyncio.Event()
        messenger.fail("send", held)
        async with post(store, messenger) as p:
            await p.owe(word("1"), word("2"))
            await messenger.until(lambda: messenger.log)
            await p.owe(word("3", YOU), word("4", YOU))
            await messenger.until_said("text 3", "text 4", chat="you")
            assert messenger.said() == []
            held.set()
            await messenger.until_said("text 1", "text 2")
            await p.delivery.drained()
            assert set((await p.states()).values()) == {"sent"}


async def test_nothing_is_tried_before_the_platform_is_ready(tmp_path):
    async with open_store(tmp_path) as store:
        messenger = Messenger()
        async with post(store, messenger, ready=False) as p:
            await p.owe(word("1"))
            await asyncio.sleep(0.1)
            assert messenger.log == []
            p.ready()
            await p.delivery.ready("test")
            await messenger.until_said("text 1")


async def test_what_another_process_owes_is_found(tmp_path):
    async with open_store(tmp_path) as store, open_store(tmp_path) as other:
        async with post(store) as p:
            await other.outbox.owe(word("1"))
            await p.messenger.until_said("text 1")


async def test_it_waits_as_long_as_the_platform_asks_and_that_is_no_try(tmp_path):
    async with open_store(tmp_path) as store:
        messenger = Messenger()
        messenger.fail("send", *(DeliveryError("flood", retry_after=0.01) for _ in range(12)))
        async with post(store, messenger, tries=2) as p:
            await p.owe(word("1"), word("2"))
            await messenger.until_said("text 1", "text 2")
            debt = await p.until("1", "sent")
            assert debt.attempts == 1 and not debt.uncertain


async def test_a_clock_that_is_set_back_keeps_nothing_waiting(tmp_path):
    now = [1_000_000.0]
    messenger = Messenger()
    messenger.fail("send", DeliveryError("no"), DeliveryError("flood", retry_after=1e5))
    async with open_store(tmp_path) as store, post(store, messenger, clock=lambda: now[0]) as p:
        await p.owe(word("a"))
        await p.until("a", "owed")
        while not (await p.outbox.find("a")).due:
            await asyncio.sleep(0.005)
        now[0] -= 8 * 3600  # and it is tried again, told to wait for a day, and asks again sooner
        await hurry(now, lambda: p.is_now("a", "sent"))
        assert now[0] < 1_000_000.0 and messenger.said() == ["text a"]


async def test_a_failure_is_tried_again_later_and_what_is_behind_it_waits(tmp_path):
    async with open_store(tmp_path) as store:
        messenger = Messenger()
        messenger.fail("send", DeliveryError("no"), RuntimeError("a bug"))
        now = [time.time()]
        async with post(store, messenger, clock=lambda: now[0]) as p:
            await p.owe(word("1"), word("2"))
            await messenger.until(lambda: messenger.log)
            debt = await p.until("1", "owed")
            assert debt.why == "no" and debt.due == pytest.approx(now[0] + 0.5)
            assert messenger.said() == []
            now[0] += 10
            p.delivery.nudge("test", lane(ME))
            await messenger.until(lambda: len(messenger.log) == 2)
            debt = await p.until("1", "owed")
            assert "RuntimeError: a bug" in debt.why and debt.uncertain, "who knows what a bug did"
            now[0] += 10
            p.delivery.nudge("test", lane(ME))
            await messenger.until_said("text 1", "text 2")


async def test_after_its_tries_it_is_a_dead_letter_and_the_next_is_sent(tmp_path):
    async with open_store(tmp_path) as store:
        messenger, now = Messenger(), [time.time()]
        messenger.fail("send", *(DeliveryError(f"no {n}") for n in range(3)))
        async with post(store, messenger, clock=lambda: now[0], tries=3) as p:
            await p.owe(word("1"), word("2"))
            await hurry(now, lambda: p.is_now("1", "dead"))
            await messenger.until_said("text 2")
            dead = await p.until("1", "dead")
            assert dead.why == "given up after 3 tries: no 2"
            assert await p.outbox.again(dead.number)
            p.delivery.nudge("test", lane(ME))
            await messenger.until_said("text 2", "text 1")


async def test_where_nothing_arrives_anywhere_nothing_is_given_up(tmp_path):
    async with open_store(tmp_path) as store:
        messenger, now = Messenger(), [time.time()]
        messenger.fail("send", *(DeliveryError("no route") for _ in range(20)))
        async with post(store, messenger, clock=lambda: now[0], tries=3) as p:
            await p.owe(word("1"), word("2", YOU))
            await messenger.until(lambda: len(messenger.log) == 2)
            await p.until("2", "owed")
            assert p.channel.state.sending == "no route"
            await hurry(now, lambda: p.is_now("1", "sent"))
            await hurry(now, lambda: p.is_now("2", "sent"))
            assert p.channel.state.sending == "" and not messenger.faults["send"]


async def test_a_chat_that_is_gone_gets_nothing_more_of_it(tmp_path):
    async with open_store(tmp_path) as store:
        messenger = Messenger()
        messenger.fail("send", Gone("the bot was blocked"))
        async with post(store, messenger) as p:
            await p.owe(word("1"), word("2"))
            await messenger.until_said("text 2")
            assert (await p.until("1", "dead")).why == "the bot was blocked"


async def test_what_may_have_arrived_is_sent_again_once_and_marked(tmp_path):
    async with open_store(tmp_path) as store:
        messenger, now = Messenger(), [time.time()]
        messenger.fail("send", Lost(), Lost())
        async with post(store, messenger, clock=lambda: now[0]) as p:
            await p.owe(word("1"), word("2"))
            await messenger.until(lambda: len(messenger.log) == 1)
            assert (await p.until("1", "owed")).uncertain
            now[0] += 100
            p.delivery.nudge("test", lane(ME))
            dead = await p.until("1", "dead")
            assert "it may be there" in dead.why
            await messenger.until_said("text 1", "text 1", "text 2", UNSURE)


async def test_a_platform_that_remembers_is_asked_again_without_harm(tmp_path):
    async with open_store(tmp_path) as store:
        messenger, now = Messenger(talents=REMEMBERS), [time.time()]
        messenger.fail("send", Lost())
        async with post(store, messenger, clock=lambda: now[0]) as p:
            await p.owe(word("1"))
            await messenger.until(lambda: messenger.log)
            assert not (await p.until("1", "owed")).uncertain
            now[0] += 100
            await p.until("1", "sent")
            assert messenger.said() == ["text 1"]


async def test_a_long_text_is_several_messages_and_goes_on_where_it_was_cut_off(tmp_path):
    long = "a" * 200 + "b" * 200 + "c" * 10
    async with open_store(tmp_path) as store:
        messenger = Messenger()
        messenger.fail("send", None, DeliveryError("flood", retry_after=0.01))
        async with post(store, messenger) as p:
            await p.owe(word("1", text=long, reply_to="9", buttons=(Button("Yes", "y"),)))
            await messenger.until_said("a" * 200, "b" * 200, "c" * 10)
            first, _, last = (bubble.piece for bubble in messenger.bubbles)
            assert first.reply_to == "9" and not first.buttons
            assert last.buttons == (Button("Yes", "y"),) and not last.reply_to
            assert (await p.until("1", "sent")).paid == ("m1", "m2", "m3")


@pytest.mark.parametrize("arrived", [False, True], ids=["before it arrived", "after it arrived"])
async def test_a_crash_in_the_midst_of_a_send_repeats_at_most_that_send(arrived, tmp_path):
    """The one window that nobody can know: marked, and only there may something be seen twice."""
    messenger, stuck = Messenger(), asyncio.Event()
    async with open_store(tmp_path) as store:
        first = post(store, messenger)
        if arrived:
            sending = messenger.send

            async def send(address, piece):
                await sending(address, piece)
                await stuck.wait()

            messenger.send = send
        else:
            messenger.fail("send", stuck)
        async with first:
            await first.owe(word("1"), word("2"))
            await messenger.until(lambda: len(messenger.bubbles if arrived else messenger.log) == 1)
    if arrived:
        del messenger.send
    async with open_store(tmp_path) as store, post(store, messenger) as p:
        await messenger.until_said(*["text 1"] * (2 if arrived else 1), "text 2")
        assert (await p.until("1", "sent")).uncertain
        assert not (await p.until("2", "sent")).uncertain


async def test_a_crash_before_or_after_a_send_doubles_nothing(tmp_path):
    """Begun by nobody: simply owed. Paid: done. What is left open beside us is not ours to doubt twice."""
    messenger = Messenger()
    async with open_store(tmp_path) as dying:
        await dying.outbox.owe(word("1"), word("2"), word("3"))
        debt = await dying.outbox.begin(await dying.outbox.head(lane(ME)))
        await dying.outbox.pay(debt, await messenger.send(ME, (messenger.pieces("text 1"))[0]))
    async with open_store(tmp_path) as store, post(store, messenger) as p:
        await messenger.until_said("text 1", "text 2", "text 3")
        assert not any(debt.uncertain for debt in await p.outbox.look())


async def test_a_crash_between_two_parts_sends_only_what_is_missing(tmp_path):
    messenger, long = Messenger(), "a" * 200 + "b" * 50
    async with open_store(tmp_path) as dying:
        await dying.outbox.owe(word("1", text=long))
        debt = await dying.outbox.begin(await dying.outbox.head(lane(ME)))
        await dying.outbox.pay(debt, await messenger.send(ME, messenger.pieces(long)[0]), rest=True)
    async with open_store(tmp_path) as store, post(store, messenger):
        await messenger.until_said("a" * 200, "b" * 50)


UNSURE = "I cannot tell whether my last message arrived here. If something is missing, ask me for it again."


async def cut_off_again_and_again(home, outbound, times):
    """Processes that die one after the other while they are sending it."""
    async with open_store(home) as dying:
        await dying.outbox.owe(outbound)
        for _ in range(times):
            debt = await dying.outbox.begin(await dying.outbox.head(lane(ME)))
            await dying.outbox.postpone(debt, 0.0, "cut off", uncertain=True)
        await dying.outbox.begin(debt)


async def test_what_was_cut_off_twice_is_not_sent_a_third_time_and_the_chat_is_told(tmp_path):
    await cut_off_again_and_again(tmp_path, word("1"), 1)
    async with open_store(tmp_path) as store, post(store) as p:
        dead = await p.until("1", "dead")
        await p.owe(word("2"))
        await p.messenger.until_said(UNSURE, "text 2")
        assert dead.uncertain and dead.why.startswith("it may be there, and was sent again once already")


async def test_where_to_send_it_again_does_no_harm_it_is_sent_after_every_crash(tmp_path):
    await cut_off_again_and_again(tmp_path, word("1"), 3)
    messenger = Messenger(talents=REMEMBERS)
    async with open_store(tmp_path) as store, post(store, messenger):
        await messenger.until_said("text 1")


async def test_a_draft_is_made_whole_after_every_crash(tmp_path):
    messenger = Messenger()
    draft = await messenger.send(ME, messenger.pieces("te…")[0])
    await cut_off_again_and_again(tmp_path, word("1", turn="t1"), 3)
    async with open_store(tmp_path) as store:
        await store.drafts.add(lane(ME), "t1", draft)
        async with post(store, messenger) as p:
            await p.until("1", "sent")
            assert messenger.said() == ["text 1"]


async def test_each_part_of_a_long_text_may_be_in_doubt_once(tmp_path):
    messenger, now, long = Messenger(), [time.time()], "a" * 200 + "b" * 200 + "c" * 50
    async with open_store(tmp_path) as store:
        messenger.fail("send", Lost(), None, Lost(), None, Lost())
        async with post(store, messenger, clock=lambda: now[0]) as p:
            await p.owe(word("1", text=long))
            await hurry(now, lambda: p.is_now("1", "sent"))
            assert [each[0] for each in messenger.said()] == ["a", "a", "b", "b", "c", "c"]


async def test_what_may_be_there_is_not_sent_again_into_a_hole(tmp_path):
    async with open_store(tmp_path) as store:
        messenger, now = Messenger(), [time.time()]
        messenger.fail("send", Lost())
        messenger.fail("typing", *(DeliveryError("no answer", uncertain=True) for _ in range(5)))
        async with post(store, messenger, clock=lambda: now[0], tries=2) as p:
            await p.owe(word("1"))
            await messenger.until(lambda: messenger.bubbles)
            await hurry(now, lambda: p.is_now("1", "sent"))
            assert messenger.said() == ["text 1"] * 2 and not messenger.faults["typing"]
            assert sum(verb == "send" for verb, *_ in messenger.log) == 2


async def test_what_is_too_old_is_dropped_and_the_chat_is_told_once(tmp_path):
    async with open_store(tmp_path) as store:
        long_ago = SqliteOutbox(store.database, clock=lambda: time.time() - 15 * 3600)
        await long_ago.owe(word("1", text="the old answer"), word("2"), word("n", notice=True))
        async with post(store, expiry=12 * 3600.0) as p:
            await p.owe(word("3"))
            notice = (
                "A message from 15 h ago could not be delivered in time and was dropped: “the old answer”. "
                "The same goes for 1 message after it."
            )
            await p.messenger.until_said("text 3", notice)
            assert [(await p.until(id, "expired")).why for id in "12n"] == ["too old to be sent"] * 3


async def test_each_may_have_its_own_time_and_nobody_misses_a_late_notice(tmp_path):
    async with open_store(tmp_path) as store:
        async with post(store) as p:
            await p.owe(word("1", expires=time.time() - 1, notice=True), word("2", expires=time.time() + 60))
            await p.messenger.until_said("text 2")
            await p.delivery.drained()
            assert p.messenger.said() == ["text 2"]


async def test_what_was_shown_unfinished_becomes_what_was_said(tmp_path):
    async with open_store(tmp_path) as store:
        messenger = Messenger()
        drafts = [await messenger.send(ME, messenger.pieces(text)[0]) for text in ("par", "tly", "too much")]
        for id in drafts:
            await store.drafts.add(lane(ME), "t1", id)
            await asyncio.sleep(0.002)
        messenger.fail(
            "edit", DeliveryError("flood", retry_after=0.01), DeliveryError("late", uncertain=True)
        )
        now = [time.time()]
        async with post(store, messenger, clock=lambda: now[0]) as p:
            await p.owe(word("1", text="a" * 200 + "b", turn="t1"))
            await hurry(now, lambda: p.is_now("1", "sent"))
            await messenger.until_said("a" * 200, "b")
            assert not (await p.until("1", "sent")).uncertain, "to change a message twice is no harm"
            assert await store.drafts.of(lane(ME), "t1") == ()


async def test_a_draft_that_somebody_took_away_is_said_anew(tmp_path):
    async with open_store(tmp_path) as store:
        await store.drafts.add(lane(ME), "t1", "m77")
        async with post(store) as p:
            await p.owe(word("1", turn="t1"))
            await p.messenger.until_said("text 1")


async def test_a_draft_that_may_be_there_makes_the_answer_uncertain(tmp_path):
    async with open_store(tmp_path) as store:
        await store.drafts.add(lane(ME), "t1", "?")
        async with post(store) as p:
            await p.owe(word("1", turn="t1"))
            await p.messenger.until_said("text 1")
            assert (await p.until("1", "sent")).uncertain


@pytest.mark.parametrize("arrived", [True, False])
async def test_a_draft_that_may_be_there_is_found_by_its_name_where_the_platform_remembers(tmp_path, arrived):
    messenger = Messenger(talents=REMEMBERS)
    if arrived:
        await messenger.send(ME, structs.replace(messenger.pieces("par")[0], id="its name"))
    async with open_store(tmp_path) as store:
        await store.drafts.add(lane(ME), "t1", "?its name")
        async with post(store, messenger) as p:
            await p.owe(word("1", turn="t1"))
            assert not (await p.until("1", "sent")).uncertain
            assert messenger.said() == ["text 1"]


async def test_a_crash_while_a_draft_is_made_whole_changes_it_again_and_sends_no_second(tmp_path):
    messenger = Messenger()
    async with open_store(tmp_path) as dying:
        id = await messenger.send(ME, messenger.pieces("par")[0])
        await dying.drafts.add(lane(ME), "t1", id)
        await dying.outbox.owe(word("1", turn="t1"))
        await dying.outbox.begin(await dying.outbox.head(lane(ME)))
        await messenger.edit(ME, id, messenger.pieces("text 1")[0])
    async with open_store(tmp_path) as store, post(store, messenger) as p:
        await p.until("1", "sent")
        assert messenger.said() == ["text 1"]
        assert await store.drafts.of(lane(ME), "t1") == (), "what the turn says next is another message"


async def test_files_go_along_as_the_platform_takes_them(tmp_path):
    (tmp_path / "x.png").write_bytes(b"x")
    media = tuple(
        Media(str(tmp_path / name), kind, name) for name, kind in (("x.png", "image"), ("gone.png", "image"))
    )
    async with open_store(tmp_path) as store:
        async with post(store) as p:
            await p.owe(word("1", media=media))
            await p.messenger.until_said(
                "text 1", "<image x.png>", "(gone.png is not there any more, so it could not be sent.)"
            )
        plain = Messenger(talents=Talents())
        async with post(store, plain) as p:
            await p.owe(word("2", media=media[:1]))
            await plain.until(lambda: len(plain.bubbles) == 2)
            assert "cannot be sent here" in plain.said()[1]


async def test_something_that_says_nothing_is_paid_without_a_message(tmp_path):
    async with open_store(tmp_path) as store:
        async with post(store) as p:
            await p.owe(Outbound("1", ME, "  "), word("2"))
            await p.messenger.until_said("text 2")
            await p.until("1", "sent")


async def test_a_text_that_breaks_the_platform_is_poison_and_does_not_stay_in_the_way(tmp_path):
    async with open_store(tmp_path) as store:
        messenger, now = Messenger(talents=TALENTS), [time.time()]
        messenger.faults["pieces"] = None
        async with post(store, messenger, clock=lambda: now[0], tries=2) as p:
            await p.owe(word("1", text="POISON"), word("2"))
            await hurry(now, lambda: p.is_now("1", "dead"))
            await messenger.until_said("text 2")


async def test_pieces_that_were_prepared_are_not_made_again_and_what_cannot_be_prepared_is_told_later():
    messenger, asked = Messenger(talents=TALENTS), []
    channel, make = Channel(messenger), messenger.pieces
    messenger.pieces = lambda text: asked.append(text) or make(text)
    messenger.faults["pieces"] = None
    for text in ("hello", "POISON"):
        await channel.prepare(text)
    assert await channel.pieces("hello") == make("hello")
    with pytest.raises(DeliveryError):
        await channel.pieces("POISON")
    assert await channel.pieces("hello") == make("hello")
    assert asked == ["hello", "POISON", "POISON", "hello"]


async def test_what_is_prepared_for_nobody_is_forgotten():
    channel = Channel(Messenger(talents=TALENTS))
    for number in range(PREPARED + 5):
        await channel.prepare(f"text {number}")
    assert len(channel._prepared) == PREPARED
