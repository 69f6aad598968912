"""Every setting as a key with type, default and description, derived from the structs in settings.py.

The reader, `alipes config why` and docs/configuration.md use this table.
"""

from collections.abc import Iterator
from functools import cache
from typing import Annotated, Any, Literal, TypeAlias, get_args, get_origin

from msgspec import NODEFAULT, Struct, structs

from alipes.config.messengers import Messengers
from alipes.config.settings import Settings
from alipes.config.value_types import (
    BODY,
    ENTRY,
    FLAG,
    HEADERS,
    KEY_VARIABLES,
    LEVELS,
    NAMES,
    SECONDS,
    SHELL_HOOKS,
    TEXT,
    URL,
    Setting,
    ValueType,
    choice,
    number,
    whole,
)
from alipes.kernel.messages import Json
from alipes.kernel.models import Endpoint, ModelFacts

WIRE_APIS = ("openai-chat", "openai-responses", "anthropic", "gemini", "bedrock")
RESERVED: tuple[str, ...] = ()
"""Tables of features that are not built yet: accepted and not checked."""
_PRICE = number(0, 100_000, "US dollars")
_FACTOR = number(0, 1000, "times the price")
_TOKENS = whole(1, 100_000_000)

# Fields of kernel values, which cannot declare settings themselves: `providers.*` and `models.*`.
_KERNEL_FIELDS: dict[type[Struct], dict[str, tuple[ValueType, str]]] = {
    Endpoint: {
        "api": (choice(*WIRE_APIS), "The provider's wire API. `embedded` is built in and needs none."),
        "base_url": (URL, "Base URL of the API, as in https://HOST/v1; with `anthropic` the /v1 may be left out."),
        "key_env": (
            KEY_VARIABLES,
            "Variable with the API key, or a list of them: when one is exhausted, the next is used. Empty: no key is "
            "sent.",
        ),
        "model": (TEXT, "The model used when only the provider is given."),
        "headers": (
            HEADERS,
            "Sent with every request. `${NAME}` is replaced by a variable, so that secrets stay in .env.",
        ),
        "body": (BODY, "Merged into the JSON body of every request."),
        "stall": (SECONDS, "Seconds without a byte after which a stream counts as dead."),
        "connect": (SECONDS, "Seconds within which a connection must be made."),
        "schemas": (
            choice("auto", "on", "off"),
            "Whether requests carry the JSON schema of an answer, so that the server enforces it. `auto`: only to "
            "OpenAI, Anthropic, Gemini's own API and Bedrock, and only a schema that they take. It is checked here "
            "in any case.",
        ),
        "credentials": (
            choice("key", "aws", "azure", "google"),
            "How the provider knows who asks: by the key in key_env, or as usual on AWS, on Azure (Entra ID) or on "
            "Google Cloud.",
        ),
        "on_limit": (
            choice("wait", "fallback", "fail"),
            "When a limit of the provider lasts longer than two minutes: wait for its reset, use a fallback model if "
            "there is one, or fail.",
        ),
    },
    ModelFacts: {
        "window": (_TOKENS, "Context window in tokens, input and output together."),
        "output": (_TOKENS, "Longest answer, in tokens."),
        "vision": (FLAG, "Whether the model accepts images."),
        "tools": (FLAG, "Whether the model calls tools."),
        "reasoning": (FLAG, "Whether the model reasons before it answers."),
        "efforts": (LEVELS, "Its reasoning levels: of off, minimal, low, medium, high, xhigh and max."),
        "price_input": (_PRICE, "US dollars per million input tokens."),
        "price_output": (_PRICE, "US dollars per million output tokens."),
        "price_cached": (_PRICE, "US dollars per million input tokens read from the cache."),
        "price_cache_write": (_PRICE, "US dollars per million tokens written to the cache."),
        "long_from": (_TOKENS, "A call with more input tokens than this costs more, all of it."),
        "long_input": (_FACTOR, "Input price of such a call, as a multiple of the normal price."),
        "long_output": (_FACTOR, "Output price of such a call, as a multiple of the normal price."),
    },
}
# Values under names that the operator chooses.
_NAMED_VALUES: dict[str, tuple[ValueType, str, Json]] = {
    "plugins.deadlines": (SECONDS, "The same for one hook, by name: `before_tool = 30`.", None),
    "plugins.entries": (
        ENTRY,
        "Settings of a plugin, by its name; see the plugin's own documentation. `${NAME}` in a text is "
        "replaced by a variable. `allow_tool_override = true` lets it replace built-in tools.",
        {},
    ),
    "toolsets": (
        NAMES,
        "What the model may use on a platform (`terminal`, `telegram`): toolsets and tool names; `core` is "
        "the built-in set. Not set: everything.",
        None,
    ),
    "hooks": (
        SHELL_HOOKS,
        "Shell hooks: a list of tables with `command`, `matcher` (a regular expression for tool names) and "
        "`timeout` (seconds), under the name of the hook, as in `[[hooks.pre_tool_call]]`.",
        None,
    ),
}


_UNNAMED_TABLES = ("tools.platforms",)
"""Fields whose tables are directly in the table around them: `[tools.telegram]`."""


class Key(Struct, frozen=True):
    path: str
    """Names separated by dots; `*` is a name the operator chooses."""
    type: ValueType
    default: Json
    description: str
    variable: str = ""
    """The environment variable that overrides the file; empty if there is none."""


Node: TypeAlias = "Key | dict[str, Node]"


def _derive_keys(struct: type[Struct], prefix: str = "") -> Iterator[Key]:
    declared = _KERNEL_FIELDS.get(struct, {})
    for field in structs.fields(struct):
        path, kind = f"{prefix}{field.name}", field.type
        if field.name in declared:
            yield _key(path, Setting(*declared[field.name]), _default(field, struct))
        elif setting := _setting_of(kind):
            yield _key(path, setting, _default(field, struct))
        elif path in _NAMED_VALUES:
            value_type, description, default = _NAMED_VALUES[path]
            yield _key(f"{path}.*", Setting(value_type, description), default)
        elif kind is Messengers:
            yield from _derive_keys(kind, prefix)
        elif _is_struct(kind):
            yield from _derive_keys(kind, f"{path}.")
        elif get_origin(kind) is dict and _is_struct(get_args(kind)[1]):
            table = prefix if path in _UNNAMED_TABLES else f"{path}."
            yield from _derive_keys(get_args(kind)[1], f"{table}*.")


def _setting_of(kind: object) -> Setting | None:
    if get_origin(kind) is not Annotated:
        return None
    field_type, *declared = get_args(kind)
    match declared:
        case [Setting() as setting]:
            return setting
        case [ValueType() as value_type, str(description)]:
            return Setting(value_type, description)
        case [str(description)] if get_origin(field_type) is Literal:
            return Setting(choice(*get_args(field_type)), description)
        case [str(description)]:
            return Setting(FLAG if field_type is bool else TEXT, description)
    return None


def _is_struct(kind: object) -> bool:
    return isinstance(kind, type) and issubclass(kind, Struct)


def _default(field: structs.FieldInfo, struct: type[Struct]) -> Json:
    if struct is ModelFacts:
        return None  # not set: the catalog's value
    if field.default_factory is not NODEFAULT:
        return {}
    default: Any = field.default
    if default is NODEFAULT:
        return {"api": "openai-chat", "aggregator": ""}.get(field.name)
    if default is None:
        return ""  # an amount
    return list(default) if isinstance(default, tuple) else default


def _key(path: str, setting: Setting, default: Json) -> Key:
    variable = setting.variable
    if not variable and "*" not in path and setting.type.parse is not None:
        variable = "ALIPES_" + path.upper().replace(".", "_")
    return Key(path, setting.type, default, setting.description, variable)


KEYS = tuple(_derive_keys(Settings))


@cache
def tree() -> dict[str, Node]:
    """The keys as nested tables; `*` matches any name."""
    root: dict[str, Node] = {}
    for key in KEYS:
        *tables, last = key.path.split(".")
        node = root
        for name in tables:
            inner = node.setdefault(name, {})
            assert isinstance(inner, dict)
            node = inner
        node[last] = key
    return root


def find_key(path: tuple[str, ...]) -> Key | None:
    """The key that `path` names or lies in: `providers.mine.body.x` lies in `providers.*.body`."""
    node: Node = tree()
    for name in path:
        if isinstance(node, Key):
            return node if node.type.parse is None else None
        inner = node.get(name) or node.get("*")
        if inner is None:
            return None
        node = inner
    return node if isinstance(node, Key) else None
