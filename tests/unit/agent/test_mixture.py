"""Models that answer together: side by side, each failing alone, one making an answer of theirs."""

import asyncio

import pytest

from alipes.app import open_app
from alipes.cli.commands import model as model_command
from alipes.config.loader import load_settings
from alipes.config.settings import MixtureConfig, Settings
from alipes.kernel.errors import ConfigError, ProviderError
from alipes.kernel.messages import Image, Message, Text, ToolCall, ToolResult, assistant, user
from alipes.kernel.ports import Request, ToolSpec
from alipes.kernel.turns import Address, Inbound, Said, Stop, ThinkingDelta, TurnEnded
from alipes.providers.mixture import (
    MAX_ANSWER_CHARS,
    MixtureProvider,
    ModelAnswer,
    ask_all,
    format_answers,
    summarize_answers,
    without_tool_calls,
)
from alipes.providers.registry import choose_model
from alipes.runtime.http.clients import ClientScope
from alipes.testing.scripted_provider import ScriptedProvider
from tests.world.subagent_harness import RuleModel

KEY = Address("test", "me").key
SECOND = 1.0


async def reading(mixture, request):
    async with mixture.stream(request) as deltas:
        return [delta async for delta in deltas]


def request(*messages, **more):
    return Request("ignored", "be good", messages, session="s", **more)


async def test_all_are_asked_at_the_same_time():
    together = asyncio.Barrier(3)

    async def ask(model):
        await together.wait()
        return f" {model} says "

    opinions = await ask_all(("a", "b", "c"), ask, SECOND)
    assert opinions == tuple(ModelAnswer(name, f"{name} says") for name in "abc")


async def test_one_that_fails_or_is_late_or_says_nothing_fails_alone():
    async def ask(model):
        match model:
            case "broken":
                raise ProviderError("it is on fire")
            case "unknown":
                raise ConfigError("no such model")
            case "slow":
                await asyncio.Event().wait()
        return "" if model == "mute" else "well"

    opinions = await ask_all(("broken", "unknown", "slow", "mute", "good"), ask, 0.02)
    assert [each.why for each in opinions] == [
        "it is on fire",
        "no such model",
        "gave no answer within 0.02 s",
        "gave an empty answer",
        "",
    ]
    assert summarize_answers(opinions).startswith(
        "answers from good; broken: it is on fire; unknown: no such model; slow: "
    )
    assert "## Answer of good\nwell" in format_answers(opinions) and "broken" not in format_answers(opinions)
    assert (
        format_answers(opinions[:4]) == ""
        and summarize_answers(opinions[:1]) == "answers from no model; broken: it is on fire"
    )


async def test_a_long_answer_is_cut():
    async def ask(model):
        return "x" * (MAX_ANSWER_CHARS + 5)

    (opinion,) = await ask_all(("a",), ask, SECOND)
    assert opinion.text.endswith("[5 characters omitted]") and len(opinion.text) < MAX_ANSWER_CHARS + 40


def test_models_without_tools_see_calls_as_text():
    picture = Image("image/png", b"x")
    talk = (
        user("look"),
        assistant(Text("I look"), ToolCall("c1", "terminal", {"command": "ls"})),
        Message("tool", (ToolResult("c1", "a b", images=(picture,)),)),
        user("and?"),
    )
    seen = without_tool_calls(talk)
    assert [message.role for message in seen] == ["user", "assistant", "user"]
    assert seen[1].text == 'I look\n(calls terminal with {"command":"ls"})'
    assert seen[2].parts == (Text("\n(terminal, ok: a b)"), picture, Text("and?"))
    assert without_tool_calls((user("hi"), assistant(Text("yes")))) == (user("hi"), assistant(Text("yes")))


async def test_the_aggregator_answers_with_tools_and_the_others_are_asked_once_for_each_question():
    asked = []

    async def ask(model, system, messages, max_tokens):
        asked.append((model, messages))
        assert "no tools" in system and system.startswith("be good") and max_tokens == 99
        return f"{model} thinks"

    last = ScriptedProvider([ToolCall("c1", "look", {}), "seen", "again"])
    mixture = MixtureProvider(("a", "b"), SECOND, last, "agg", ask)
    look = ToolSpec("look", "look", {})
    first = request(user("what?"), tools=(look,), max_tokens=99)
    deltas = await reading(mixture, first)
    assert deltas[0] == ThinkingDelta("(answers from a, b)\n") and deltas[-1].message.calls
    done = (user("what?"), deltas[-1].message, Message("tool", (ToolResult("c1", "a cat"),)))
    second = await reading(mixture, request(*done, tools=(look,), max_tokens=99))
    assert second[-1].message.text == "seen" and not isinstance(second[0], ThinkingDelta)
    assert [model for model, _ in asked] == ["a", "b"]
    for each in last.asked:
        assert each.model == "agg" and each.tools == (look,)
        assert "## Answer of a\na thinks" in each.messages[0].text and "b thinks" in each.messages[0].text
    await reading(mixture, request(*done, assistant(Text("seen")), user("more?"), max_tokens=99))
    assert len(asked) == 4 and asked[-1][1][-1].text == "more?"


async def test_the_aggregator_answers_alone_where_nobody_else_does():
    async def ask(*_):
        raise ProviderError("down")

    last = ScriptedProvider(["my own"])
    half = user("what \ud83d?")  # as a broken pipe may bring it
    deltas = await reading(MixtureProvider(("a",), SECOND, last, "agg", ask), request(half))
    assert deltas[0] == ThinkingDelta("(answers from no model; a: down)\n") and deltas[-1].message.text == "my own"
    assert last.asked[0].messages == (half,)


async def test_nobody_is_asked_for_a_summary():
    async def ask(*_):
        raise AssertionError("nobody asked for this")

    last = ScriptedProvider(["in short"])
    deltas = await reading(
        MixtureProvider(("a",), SECOND, last, "agg", ask), request(user("what?"), tool_choice="none")
    )
    assert deltas[-1].message.text == "in short"


CONFIG = """
model = "scripted"
[moa.best]
models = ["one/a", "two/b"]
aggregator = "three/c"
timeout = 5
[providers.one]
base_url = "http://127.0.0.1:9/v1"
[providers.two]
base_url = "http://127.0.0.1:9/v1"
[providers.three]
base_url = "http://127.0.0.1:9/v1"
"""


def settings(home, text=CONFIG) -> Settings:
    (home / "config.toml").write_text(text)
    return load_settings(home, {})


async def turn(app, text, id="1", **more):
    async with app.sessions.ask(Inbound(id, Address("test", "me"), "me", text, **more)) as following:
        return [event async for event in following]


async def test_a_mixture_is_a_model_by_its_name_and_every_call_is_on_the_bill(tmp_path):
    minds = {name: ScriptedProvider([f"{name} says"]) for name in ("one", "two", "three")}
    async with open_app(settings(tmp_path), lent=minds) as app:
        assert "moa/best" in app.models.names()
        events = await turn(app, "what?", model="moa/best")
        (said,) = [event for event in events if isinstance(event, Said) and event.model]
        assert said.model == "moa/best" and said.message.text == "three says"
        assert "one says" in minds["three"].asked[0].messages[-1].text
        sql = "SELECT model, task FROM model_calls WHERE task = 'moa' ORDER BY model"
        billed = await app.store.database.read(lambda db: db.execute(sql).fetchall())
        assert billed == [("one/a", "moa"), ("two/b", "moa")]
        with pytest.raises(ConfigError, match=r"Unknown mixture worst: use moa/best"):
            await app.models.open("moa/worst")


async def test_the_tool_asks_the_usual_mixture_or_those_that_are_named(tmp_path):
    call = ToolCall("c1", "mixture_of_agents", {"prompt": "what?"})
    named = ToolCall("c2", "mixture_of_agents", {"prompt": "and?", "models": ["two/b"], "aggregator": "two/b"})
    minds = {
        "scripted": ScriptedProvider([call, "first", named, "second"]),
        "one": ScriptedProvider(["a says"]),
        "two": ScriptedProvider([ProviderError("down"), "b says", "b sums up"]),
        "three": ScriptedProvider(["c sums up"]),
    }
    async with open_app(settings(tmp_path), lent=minds) as app:
        events = await turn(app, "go")
        (result,) = [e.message.parts[0] for e in events if isinstance(e, Said) and e.message.role == "tool"]
        assert result.text == "c sums up\n\n[answers from one/a; two/b: down]"
        events = await turn(app, "again", "2")
        (result,) = [e.message.parts[0] for e in events if isinstance(e, Said) and e.message.role == "tool"]
        assert result.text == "b sums up\n\n[answers from two/b]"


@pytest.mark.parametrize(
    "args, word",
    [({"prompt": "x"}, "moa.default"), ({"prompt": " "}, "empty"), ({"prompt": "x", "models": ["a"] * 9}, "maximum")],
)
async def test_a_call_that_names_nobody_or_too_many_asks_nobody(tmp_path, args, word):
    minds = {"scripted": ScriptedProvider([ToolCall("c1", "mixture_of_agents", args), "so"])}
    async with open_app(settings(tmp_path, 'model = "scripted"'), lent=minds) as app:
        events = await turn(app, "go")
        (result,) = [e.message.parts[0] for e in events if isinstance(e, Said) and e.message.role == "tool"]
        assert result.outcome == "failed" and word in result.text


async def test_stop_ends_every_question_of_a_mixture(tmp_path):
    together = asyncio.Barrier(3)

    async def answer():
        await together.wait()
        await asyncio.Event().wait()

    minds = {name: RuleModel(lambda seen, request: answer()) for name in ("one", "two")}
    async with open_app(settings(tmp_path), lent={**minds, "three": ScriptedProvider([])}) as app:
        message = Inbound("1", Address("test", "me"), "me", "what?", model="moa/best")
        async with app.sessions.ask(message) as following:
            await together.wait()
            assert [mind.living for mind in minds.values()] == [1, 1]
            await app.sessions.post(KEY, Stop())
            assert [e.ending async for e in following if isinstance(e, TurnEnded)] == ["stopped"]
        assert [mind.living for mind in minds.values()] == [0, 0]


def test_a_mixture_in_the_configuration_is_checked(tmp_path):
    good = settings(tmp_path, CONFIG.replace('model = "scripted"', 'model = "moa/best"'))
    assert good.model == "moa/best"
    assert good.moa == {"best": MixtureConfig(("one/a", "two/b"), "three/c", 5.0)}
    with pytest.raises(ConfigError) as raised:
        settings(tmp_path, 'model = "moa/other"\n[moa.best]\nmodels = ["scriptd/x"]\n')
    assert "aggregator" in str(raised.value) and "scripted?" in str(raised.value)
    assert 'model = "moa/other" has an unknown provider' in str(raised.value)


async def test_a_mixture_can_be_the_model_that_answers(tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("ALIPES_HOME", str(tmp_path))
    settings(tmp_path)
    assert await asyncio.to_thread(model_command.run, ["moa/best"]) == 0
    assert capsys.readouterr().out == "Switched to moa/best.\n"
    async with ClientScope() as scope:
        assert (await choose_model(load_settings(tmp_path, {}), scope)).model == "moa/best"
    assert await asyncio.to_thread(model_command.run, []) == 0
    assert "* moa/best" in capsys.readouterr().out
    assert await asyncio.to_thread(model_command.run, ["moa/worst"]) == 2
    assert "use moa/best" in capsys.readouterr().err
