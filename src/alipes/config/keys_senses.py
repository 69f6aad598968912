"""The settings of tools that look, draw, ask and compute."""

from alipes.config.key import Key
from alipes.config.kinds import HOST, MODEL, Kind, number, whole
from alipes.config.urls import Wrong
from alipes.kernel.messages import Json


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
