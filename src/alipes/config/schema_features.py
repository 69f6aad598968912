"""The settings of models that work beside the one that answers: what each does, and what all may cost."""

import re
from collections.abc import Callable

from alipes.config.urls import Wrong, check_base_url
from alipes.config.value_types import FLAG, HOST, MODEL, MODELS, Key, Kind, choice, number, whole
from alipes.kernel.messages import Json


def _each(value: object, check: Callable[[object], str], like: str) -> list[Json]:
    if not isinstance(value, list) or not all(isinstance(each, str) for each in value):
        raise Wrong(f"must be a list like {like}")
    return [check(each) for each in value]


def _origin(value: object) -> str:
    address = check_base_url(str(value)).lower()
    if address.count("/") > 2:
        raise Wrong("has a path: give the page's scheme, host and port alone, as in https://HOST")
    return address


def _parted(text: str) -> list[str]:
    return [each.strip() for each in text.split(",") if each.strip()]


_HOSTS = Kind(
    "list of hosts",
    lambda value: _each(value, lambda each: str(HOST.check(each)).lower(), '["agent.example.com"]'),
    _parted,
)
_ORIGINS = Kind(
    "list of addresses", lambda value: _each(value, _origin, '["https://page.example.com"]'), _parted
)
API_KEYS: tuple[Key, ...] = (
    Key(
        "api.hosts",
        _HOSTS,
        [],
        "Names by which `alipes serve` may be called beside this machine's own, such as that of the web "
        "server in front of it. Others are refused, so that no page reaches us under a name of its own.",
    ),
    Key(
        "api.origins",
        _ORIGINS,
        [],
        "Pages that may call the API from a browser, as in https://HOST. Empty: none of others.",
    ),
    Key(
        "api.rate",
        whole(0, 1_000_000),
        1200,
        "Requests a minute that one key has, unless it was given another number. 0: as many as it likes.",
    ),
    Key("api.body", whole(1000, 1_000_000_000), 20_000_000, "Bytes that one request may bring."),
    Key(
        "api.body_seconds",
        number(0.1, 3600, "seconds"),
        30.0,
        "Seconds in which what a request brings must have arrived.",
    ),
    Key(
        "api.wait",
        number(0.1, 86_400, "seconds"),
        600.0,
        "Seconds that a request waits for its answer. Streams go on for as long as they like.",
    ),
)


DELEGATION_KEYS: tuple[Key, ...] = (
    Key("delegation.parallel", whole(1, 64), 4, "Subagents of one turn that work at the same time."),
    Key(
        "delegation.depth",
        whole(0, 8),
        2,
        "How deep subagents may be nested: 1 means that they have none of their own. 0: there are none.",
    ),
    Key("delegation.steps", whole(1, 10_000), 40, "Model calls of one subagent; then it sums up and ends."),
    Key(
        "delegation.minutes",
        number(0, 10_080, "minutes"),
        20.0,
        "Minutes after which a subagent is stopped; what it had said by then is kept. 0: never.",
    ),
    Key(
        "moa.*.models",
        MODELS,
        None,
        "Models that are asked the same question, side by side. The table's name makes a model of them: "
        "`[moa.best]` is `moa/best`.",
    ),
    Key("moa.*.aggregator", MODEL, "", "The model that reads their answers and gives its own, with tools."),
    Key(
        "moa.*.timeout",
        number(0.1, 3600, "seconds"),
        90.0,
        "Seconds that the others have; whoever is later is left out.",
    ),
)


def _hosted(value: object) -> list[Json]:
    if not isinstance(value, list) or not all(isinstance(each, str) for each in value):
        raise Wrong('must be a list of hosts, as in ["nas.lan", "127.0.0.1:8000"]')
    return [_place(each) for each in value]


def _place(text: str) -> str:
    host, _, port = text.strip().lower().rpartition(":")
    if not host or "]" in port or not port.isdecimal():  # there is no port in it
        return str(HOST.check(text.strip().lower()))
    return f"{HOST.check(host)}:{port}"


_HOSTED = Kind("list of hosts", _hosted, lambda text: text.replace(",", " ").split())

SENSES_KEYS: tuple[Key, ...] = (
    Key(
        "fetch.allow",
        _HOSTED,
        [],
        "Hosts, as HOST or HOST:PORT, that tools may fetch from though they are on this machine or on a "
        "private network. All others there are refused, also where a name or a redirect leads to them.",
    ),
    Key(
        "images.model",
        MODEL,
        "",
        "The model that draws, as provider/model; its provider must take what OpenAI's image endpoints take. "
        "Empty: a plugin's, or none, and then the tool is not offered.",
    ),
    Key("images.timeout", number(1, 3600, "seconds"), 180.0, "Seconds that one picture may take."),
    Key(
        "clarify.timeout",
        number(5, 86_400, "seconds"),
        600.0,
        "Seconds that a question of the model's waits for your answer; then it goes on without one.",
    ),
    Key("code.timeout", number(1, 3600, "seconds"), 300.0, "Seconds that one `execute_code` may take."),
    Key("code.calls", whole(0, 1000), 50, "How often the code of one `execute_code` may use a tool."),
)


AMOUNT_FORM = r"\$(\d+(?:\.\d+)?)|(\d+(?:\.\d+)?) ?([kM]?) tokens"
_SAYS = 'amount like "$0.50" or "200k tokens"'


def _amount(value: object) -> str:
    if not isinstance(value, str):
        raise Wrong(f"does not say of what: write an {_SAYS}, in quotes")
    text = " ".join(value.split())
    if text and not re.fullmatch(AMOUNT_FORM, text):
        raise Wrong(f"must be an {_SAYS}; empty: no limit")
    if text and not any(digit in text for digit in "123456789"):
        raise Wrong("would let nothing be asked: raise it, or leave it empty for no limit")
    return text


AMOUNT = Kind(_SAYS, _amount)
_TASKS = "compaction, titles, vision, approval, web, judge or moa"

SIDE_KEYS: tuple[Key, ...] = (
    Key(
        "auxiliary.*.model",
        MODEL,
        "",
        f"The model that does this work beside the one that answers; `*` is {_TASKS}. Empty: the one that "
        "answers. `titles` are only asked for where a model is set here.",
    ),
    Key("auxiliary.*.max_tokens", whole(0, 10_000_000), 0, "Tokens its answer may have. 0: what suits."),
    Key(
        "auxiliary.*.timeout",
        number(0.1, 86_400, "seconds"),
        120.0,
        "Seconds in which it must have answered, all attempts together.",
    ),
    Key(
        "auxiliary.*.effort",
        choice("", "low", "medium", "high"),
        "",
        "How hard it should think. Empty: the model's own default.",
    ),
    Key(
        "spend.per_turn",
        AMOUNT,
        "",
        "What one turn may use, with all that works for it, before you are asked. Tokens count in and out. "
        "Empty: no limit.",
    ),
    Key("spend.per_session", AMOUNT, "", "The same for all turns of a conversation."),
    Key("spend.per_day", AMOUNT, "", "The same for everything since midnight, in all conversations."),
    Key(
        "compaction.at",
        number(0, 0.95, "parts of the window"),
        0.8,
        "How full the model's window may be before what was said first is summed up. 0: only when the model "
        "says that a conversation is too long.",
    ),
    Key(
        "compaction.background",
        FLAG,
        True,
        "Whether a conversation that will soon be too long is summed up between two turns.",
    ),
)
