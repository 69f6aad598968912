"""Several keys of one provider: which is used when, who hears of it, and the bill of each."""

import pytest

from alipes.kernel.api_keys import KeyRest, describe_keys
from alipes.kernel.errors import NotAuthorised, OutOfCredit, ProviderError, Transient
from alipes.kernel.messages import user
from alipes.kernel.models import Endpoint, NamedKey, Secret
from alipes.kernel.ports import Request
from alipes.kernel.turns import ModelReply, Usage
from alipes.providers.keys import LIMIT_REST_S, OTHER_REST_S, KeyRing, LocalKeyRecords
from alipes.testing.scripted_provider import ScriptedProvider

ENDPOINT = Endpoint(
    "mine", "openai-chat", "http://127.0.0.1:9/v1", Secret("a"), "A", keys=(
        NamedKey("A", Secret("a")), NamedKey("B", Secret("b")), NamedKey("C", Secret("c"))
    )
)  # fmt: skip


class Records(LocalKeyRecords):
    def __init__(self):
        super().__init__()
        self.calls, self.used = [], {}

    async def look(self, provider, session):
        rests, _ = await super().look(provider, session)
        return rests, self.used.get(session, "")

    async def count(self, provider, variable, session, model, usage):
        self.calls.append((provider, variable, session, model, usage.cost))
        self.used[session] = variable


class Ring:
    def __init__(self, **scripts):
        self.now, self.records = 1000.0, Records()
        self.scripts = {name: ScriptedProvider(lines) for name, lines in scripts.items()}
        self.opened = []
        self.ring = KeyRing(ENDPOINT, self._open, self.records, lambda *_: 0.5, clock=lambda: self.now)

    def _open(self, endpoint):
        self.opened.append((endpoint.key_env, endpoint.key.reveal(), endpoint.keys))
        return self.scripts[endpoint.key_env]

    async def ask(self, session="s"):
        async with self.ring.stream(Request("m", "", (user("hi"),), session=session)) as deltas:
            found = [delta async for delta in deltas]
        assert isinstance(found[-1], ModelReply)
        return found[-1].message.text

    def asked(self):
        return {name: len(script.asked) for name, script in self.scripts.items()}


def limit(seconds=None, status=429):
    error = Transient("limited", seconds)
    error.status = status
    return error


def rejected(status=401):
    error = NotAuthorised("rejected")
    error.status = status
    return error


@pytest.mark.parametrize(
    ("error", "reason", "span"),
    [
        (limit(42.0), "limit", 42.0),
        (limit(), "limit", LIMIT_REST_S),
        (OutOfCredit("empty"), "credit", OTHER_REST_S),
        (rejected(), "rejected", OTHER_REST_S),
    ],
)
async def test_the_next_key_answers_and_the_first_rests_as_long_as_the_server_said(error, reason, span):
    ring = Ring(A=[error], B=["from b"])
    assert await ring.ask() == "from b"
    rests, _ = await ring.records.look("mine", "s")
    assert rests == {"A": KeyRest("A", reason, 1000.0 + span)}
    assert ring.opened == [("A", "a", ()), ("B", "b", ())]


async def test_a_conversation_keeps_its_key_while_that_works_and_others_return_to_the_first():
    ring = Ring(A=[limit(10.0), "from a"], B=["one", "two"])
    assert [await ring.ask(), ring.asked()] == ["one", {"A": 1, "B": 1}]
    ring.now += 11
    assert await ring.ask() == "two"
    assert await ring.ask("another") == "from a"


async def test_a_resting_key_is_not_asked():
    ring = Ring(A=[limit(10.0)], B=["one", "two"])
    await ring.ask("s")
    await ring.ask("another")
    assert ring.asked() == {"A": 1, "B": 2}


async def test_with_all_keys_at_their_limit_the_error_says_when_the_first_can_be_used_again():
    ring = Ring(A=[limit(300.0)], B=[limit(100.0)], C=[rejected()])
    for _ in range(2):
        with pytest.raises(Transient, match=r"All keys of mine are at their limit: A \(at its limit until") as caught:
            await ring.ask()
        assert (caught.value.status, caught.value.retry_after) == (429, 100.0)
    assert ring.asked() == {"A": 1, "B": 1, "C": 1}


async def test_with_all_keys_rejected_nothing_is_waited_for():
    ring = Ring(A=[rejected()], B=[rejected()], C=[rejected()])
    with pytest.raises(NotAuthorised, match="rejected all keys"):
        await ring.ask()


async def test_a_model_that_no_key_may_use_does_not_make_the_keys_rest():
    ring = Ring(A=[rejected(403), "later"], B=[rejected(403)], C=[rejected(403)])
    with pytest.raises(NotAuthorised):
        await ring.ask()
    assert await ring.ask() == "later"


@pytest.mark.parametrize("error", [ProviderError("bad request"), limit(status=503)])
async def test_other_errors_are_not_about_the_key(error):
    ring = Ring(A=[error])
    with pytest.raises(type(error)):
        await ring.ask()
    assert ring.opened == [("A", "a", ())]


async def test_after_the_first_words_the_key_is_not_changed_within_the_answer():
    ring = Ring(A=[("half an", limit(10.0))], B=["whole"])
    with pytest.raises(Transient):
        await ring.ask()
    assert await ring.ask() == "whole"


async def test_each_call_is_on_the_bill_of_its_key_with_its_price():
    priced = ModelReply(user("x"), Usage(1, 1, cost=0.25))
    ring = Ring(A=["one", priced])
    await ring.ask()
    await ring.ask()
    assert ring.records.calls == [("mine", "A", "s", "m", 0.5), ("mine", "A", "s", "m", 0.25)]


def test_keys_are_described_by_their_variables_only():
    rests = {"A": KeyRest("A", "credit", 2000.0), "B": KeyRest("B", "limit", 10.0)}
    text = describe_keys(["A", "B", "C"], rests, "C", 1000.0)
    assert text.startswith("A (out of credit until ") and text.endswith("), B, C (used)")
