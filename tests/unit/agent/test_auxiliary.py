"""Models beside the one that answers: which is asked, how long, and that it is on the bill."""

import asyncio
import json
from contextlib import asynccontextmanager

import pytest
from msgspec import structs

from alipes.agent.auxiliary import BackgroundTasks, ConversationTitles, parse_title
from alipes.agent.model_call import RetryPolicy
from alipes.config.loader import load_settings, parse_amount
from alipes.config.settings import Amount, AuxiliaryConfig, CompactionConfig, SpendConfig
from alipes.config.urls import InvalidValue
from alipes.config.value_types import AMOUNT
from alipes.features.usage import cli
from alipes.features.usage.report import lines, plot, report
from alipes.kernel.errors import ConfigError, Transient
from alipes.kernel.messages import user
from alipes.kernel.models import ModelFacts
from alipes.kernel.turns import Address, Inbound, Usage
from alipes.store.ports.archive import UsageSum
from alipes.store.sql.usage import UsageRecord
from alipes.store.sqlite.store import open_store
from tests.world.window_model import WindowModel, WindowModels, open_compaction, settings_with


@asynccontextmanager
async def a_study(home, library, side=None):
    async with open_store(home) as store:
        address = Address("test", "me")
        await store.turns.accept(Inbound("1", address, "me", "draw a cat", model=""))
        turn = await store.turns.claim_next(address.key)
        side = open_compaction(store, library, side)
        side.auxiliary.patience = RetryPolicy(attempts=2, sleep=lambda _seconds: asyncio.sleep(0))
        yield store, turn, side.auxiliary


async def test_the_model_that_answers_does_it_unless_another_is_named(tmp_path):
    first, other = WindowModel("main"), WindowModel("small")
    library = WindowModels(first, q_small=other, r_third=WindowModel("third"))
    side = settings_with(auxiliary={"vision": AuxiliaryConfig(model="q/small", max_tokens=77, effort="low")})
    async with a_study(tmp_path, library, side) as (_, turn, auxiliary):
        ask = {"system": "s", "messages": (user("what?"),)}
        assert (await auxiliary.ask("web", turn, **ask)).message.text == "main"
        assert (await auxiliary.ask("vision", turn, **ask)).message.text == "small"
        request = other.asked[0]
        assert (request.max_tokens, request.effort, request.system) == (77, "low", "s")
        assert (await auxiliary.ask("vision", turn, model="r/third", **ask)).message.text == "third"
        chosen = structs.replace(turn, model="q/small")
        assert (await auxiliary.backend("web", chosen)).name == "q/small"
        assert (await auxiliary.backend("web", turn)).name == "p/m"


async def test_every_call_is_on_the_bill_by_task_tool_and_model(tmp_path):
    library = WindowModels(WindowModel("one", "two"), ModelFacts(price_input=1.0, price_output=2.0))
    async with a_study(tmp_path, library) as (store, turn, auxiliary):
        await auxiliary.ask("web", turn, system="", messages=(user("x" * 400),), tool="web_extract")
        await auxiliary.ask("judge", turn, system="", messages=(user("y"),))
        by_tool = {each.name: each.calls for each in await store.archive.usage_by("tool")}
        assert by_tool == {"": 1, "web_extract": 1}
        task = {each.name: each for each in await store.archive.usage_by("task", session=turn.session)}
        assert set(task) == {"web", "judge"} and task["web"].usage.input == 100
        assert task["web"].usage.cost == pytest.approx((100 * 1.0 + 0 * 2.0) / 1e6)
        assert (await store.archive.usage(turn=turn.id)).calls == 2
        assert [each.name for each in await store.archive.usage_by("turn")] == [turn.id]


async def test_what_is_deleted_is_on_no_bill(tmp_path):
    async with a_study(tmp_path, WindowModels(WindowModel("one"))) as (store, turn, auxiliary):
        await auxiliary.ask("web", turn, system="", messages=(user("x"),))
        await store.turns.finish(turn, "answered", "")
        await store.archive.delete(turn.session)
        assert not (await store.archive.usage()).calls


async def test_one_that_takes_too_long_is_given_up_and_one_that_is_stopped_is_closed(tmp_path):
    reader = WindowModel(lambda _request: asyncio.Event().wait())
    side = settings_with(auxiliary={"web": AuxiliaryConfig(timeout=0.05)})
    async with a_study(tmp_path, WindowModels(reader), side) as (store, turn, auxiliary):
        with pytest.raises(Transient, match=r"did not answer within 0\.05 s"):
            await auxiliary.ask("web", turn, system="", messages=(user("x"),))
        assert not await store.archive.usage_by("task")
        reader.script = [lambda _request: asyncio.Event().wait()]
        asking = asyncio.create_task(auxiliary.ask("judge", turn, system="", messages=(user("x"),)))
        while len(reader.asked) < 2:
            await asyncio.sleep(0)
        asking.cancel()
        with pytest.raises(asyncio.CancelledError):
            await asking


async def test_trouble_that_passes_is_waited_for(tmp_path):
    reader = WindowModel(Transient("busy"), "there")
    async with a_study(tmp_path, WindowModels(reader)) as (_, turn, auxiliary):
        assert (await auxiliary.ask("web", turn, system="", messages=(user("x"),))).message.text == "there"


async def test_a_new_conversation_gets_a_title_where_a_model_for_that_is_set(tmp_path):
    said = (user("how do I bake bread?"),)
    titles = settings_with(
        auxiliary={"titles": AuxiliaryConfig(model="q/small")}, compaction=CompactionConfig(background=False)
    )
    reader = WindowModel("“Baking bread”\nA title.")
    async with a_study(tmp_path, WindowModels(WindowModel(), q_small=reader), titles) as (store, turn, auxiliary):
        async with BackgroundTasks() as tasks:
            aside = ConversationTitles(auxiliary, store.sessions.set_title_if_empty, tasks)
            await aside.turn_ended(turn, "failed", said)
            await aside.turn_ended(structs.replace(turn, history=said), "answered", said)
            assert reader.asked == []
            await aside.turn_ended(turn, "answered", said)
            while not (await store.archive.resolve(turn.session)).title.startswith("Baking"):
                await asyncio.sleep(0.005)
        assert (await store.archive.resolve(turn.session)).title == "Baking bread"
        assert not await store.sessions.set_title_if_empty(turn.session, "Another")
        assert [each.name for each in await store.archive.usage_by("task")] == ["titles"]


async def test_what_breaks_beside_a_turn_breaks_nothing_else(tmp_path):
    async def entitle(_session, _title):
        raise ValueError("a mistake of ours")

    titles = settings_with(
        auxiliary={"titles": AuxiliaryConfig(model="q/small")}, compaction=CompactionConfig(background=False)
    )
    reader = WindowModel("Bread", "Bread")
    async with a_study(tmp_path, WindowModels(reader, q_small=reader), titles) as (_, turn, auxiliary):
        async with BackgroundTasks() as tasks:
            aside = ConversationTitles(auxiliary, entitle, tasks)
            for _ in range(2):
                await aside.turn_ended(turn, "answered", (user("hello"),))
            while len(reader.asked) < 2 or tasks._tasks:
                await asyncio.sleep(0.005)


async def test_without_such_a_model_the_first_words_are_the_title(tmp_path):
    settings = settings_with(compaction=CompactionConfig(background=False))
    reader = WindowModel()
    async with a_study(tmp_path, WindowModels(reader), settings) as (store, turn, auxiliary):
        async with BackgroundTasks() as tasks:
            aside = ConversationTitles(auxiliary, store.sessions.set_title_if_empty, tasks)
            await aside.turn_ended(turn, "answered", (user("hello"),))
        assert (await store.archive.resolve(turn.session)).title == "draw a cat" and reader.asked == []


@pytest.mark.parametrize(
    ("text", "title"),
    [
        ("Title: Bread.", "Bread"),
        ("\n\n**Bread at home**\nmore", "Bread at home"),
        ("", ""),
        ("x" * 80, "x" * 59 + "…"),
    ],
)
def test_a_title_is_one_short_line(text, title):
    assert parse_title(text) == title


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("$0.50", Amount("$0.50", dollars=0.5)),
        ("$2", Amount("$2", dollars=2.0)),
        ("200k tokens", Amount("200k tokens", tokens=200_000)),
        ("1.5M tokens", Amount("1.5M tokens", tokens=1_500_000)),
        ("800 tokens", Amount("800 tokens", tokens=800)),
        ("", None),
    ],
)
def test_an_amount_is_money_or_tokens(text, value):
    assert AMOUNT.check(text) == text and parse_amount(text) == value


@pytest.mark.parametrize("wrong", [5, 0.5, "5", "5 dollars", "0.50$", "$-1", "$0.00", "0 tokens", "k tokens"])
def test_an_amount_that_does_not_say_of_what_is_refused(wrong):
    with pytest.raises(InvalidValue):
        AMOUNT.check(wrong)


def test_the_settings_say_who_does_what_and_what_it_may_cost(tmp_path):
    (tmp_path / "config.toml").write_text("""
        [auxiliary.titles]
        model = "openai/gpt-small"
        timeout = 5
        [spend]
        per_day = "$5"
        per_turn = "200k tokens"
        [compaction]
        at = 0.5
        background = false
    """)
    side = load_settings(tmp_path, {})
    assert side.auxiliary_for("titles") == AuxiliaryConfig(model="openai/gpt-small", timeout=5.0)
    assert side.auxiliary_for("vision") == AuxiliaryConfig()
    assert side.spend == SpendConfig(per_turn=parse_amount("200k tokens"), per_day=parse_amount("$5"))
    assert side.compaction == CompactionConfig(0.5, False)
    assert load_settings(tmp_path / "other", {}).auxiliary == {}


@pytest.mark.parametrize(
    ("text", "seen"),
    [
        ("[auxiliary.title]\nmodel = 'openai/x'", "Did you mean titles?"),
        ("[auxiliary.titles]\nmodel = 'nobody/x'", "has an unknown provider"),
        ("[auxiliary.titles]\nmodle = 'openai/x'", "Did you mean model?"),
        ("[spend]\nper_turn = 5", 'write an amount like "$0.50" or "200k tokens"'),
    ],
)
def test_wrong_settings_are_explained(tmp_path, text, seen):
    (tmp_path / "config.toml").write_text(text)
    with pytest.raises(ConfigError, match=seen.replace("?", r"\?").replace("$", r"\$")):
        load_settings(tmp_path, {})


def day(name, tokens=0, cost=None, unpriced=0):
    return UsageSum(name, int(bool(tokens)), Usage(input=tokens, cost=cost), unpriced)


def test_days_are_drawn_by_cost_or_where_that_is_unknown_by_tokens():
    rows = plot((day("2026-11-13"), day("2026-11-14", 10, 0.5), day("2026-11-15", 10, 1.0)))
    assert [row.count("#") for row in rows] == [20, 40] and rows[0].endswith("$0.5000")
    rows = plot((day("a", 10, 9.0), day("b"), day("c", 40, None, 1)))
    assert [row.count("#") for row in rows] == [10, 0, 40] and rows[2].endswith("40 tokens")


async def test_the_report_tells_by_what_and_which_prices_are_unknown(tmp_path, capsys, monkeypatch):
    monkeypatch.setenv("ALIPES_HOME", str(tmp_path))
    library = WindowModels(WindowModel(), ModelFacts())
    async with a_study(tmp_path, library) as (store, turn, _):
        side = open_compaction(store, library)
        await side.spending.record(UsageRecord(turn, "vision", "p/eye", Usage(1000, 10, cost=0.25), "vision_analyze"))
        await side.spending.record(UsageRecord(turn, "compaction", "p/small", Usage(500, 20)))
        seen = await report(store.archive, 7)
        text = "\n".join(lines(seen))
    assert len(seen.by_day) == 7 and seen.total.calls == 2
    for words in ("p/eye", "vision_analyze", "not for a tool", "compaction", "“draw a cat”", "#"):
        assert words in text
    assert "$0.2500 and 1 call of unknown price" in text
    code = await asyncio.to_thread(cli.run, ["--days", "3", "--json"])
    document = json.loads(capsys.readouterr().out)
    assert code == 0 and document["total"]["unpriced"] == 1 and len(document["by_day"]) == 3


async def test_a_home_without_calls_says_so(tmp_path):
    async with open_store(tmp_path) as store:
        assert lines(await report(store.archive, 30)) == ["No model calls in the last 30 days."]
