"""The contestants and how each is started: with one question, or as a gateway on our Bot API."""

import json
import os
import shutil
import sys
from collections.abc import Callable
from pathlib import Path

from msgspec import Struct
from tests.world.kill_trial import configure
from tests.world.model_server import ModelProcess as Model
from tests.world.serve_process import ServeProcess
from tests.world.telegram_control import TelegramProcess as Messenger

HERE = Path(__file__).parent
ROOT = HERE.parent
RIVALS = ROOT / ".rivals"
BIN = Path(sys.executable).parent


class Place(Struct, frozen=True):
    """A scratch folder, and the servers to use."""

    folder: Path
    model: Model
    messenger: Messenger | None = None
    front: str = ""
    """A proxy that serves our Bot API under Telegram's host name."""
    ca: Path = Path()

    @property
    def url(self) -> str:
        return self.model.url("openai-chat")

    @property
    def home(self) -> Path:
        return self.folder / "home"

    def environment(self, **more: str) -> dict[str, str]:
        keep = {name: os.environ[name] for name in ("PATH", "LANG") if name in os.environ}
        return keep | {"HOME": str(self.folder)} | more


class Start(Struct, frozen=True):
    argv: list[str]
    env: dict[str, str]


class Contestant(Struct, frozen=True):
    name: str
    program: str
    shell: str
    """The name of its tool that runs a command."""
    ask: Callable[[Place, str], Start]
    """Writes its settings, then asks one question."""
    gateway: Callable[[Place], Start] | None = None
    rounds: Callable[[Place, str], Start] | None = None
    """Only if tool rounds need another program."""

    @property
    def there(self) -> bool:
        return Path(self.program).exists()


def _raw(place: Place, words: str) -> Start:
    return Start([sys.executable, str(HERE / "raw_ask.py"), place.url, words], place.environment())


def _raw_rounds(place: Place, words: str) -> Start:
    return Start([sys.executable, str(HERE / "raw_rounds.py"), place.url], place.environment())


def _alipes(place: Place, words: str) -> Start:
    configure(place.home, place.url)
    env = place.environment(ALIPES_HOME=str(place.home))
    return Start([ALIPES.program, "ask", words], env)


def _alipes_gateway(place: Place) -> Start:
    service = ServeProcess(place.folder)
    service.settle(place.model, place.messenger)
    return Start([ALIPES.program, "serve", "--port", "0"], place.environment(ALIPES_HOME=str(service.home)))


HERMES_CONFIG = """\
model:
  default: parrot
  provider: custom
  base_url: {model}
  api_key: none
  context_length: 128000
"""
HERMES_TELEGRAM = """\
platforms:
  telegram:
    enabled: true
    extra:
      base_url: {messenger}/bot
"""


def _hermes(place: Place, words: str) -> Start:
    place.home.mkdir(exist_ok=True)
    (place.home / "config.yaml").write_text(HERMES_CONFIG.format(model=place.url))
    return Start([HERMES.program, "-z", words], place.environment(HERMES_HOME=str(place.home)))


def _hermes_gateway(place: Place) -> Start:
    assert place.messenger is not None
    start = _hermes(place, "")
    with open(place.home / "config.yaml", "a") as config:
        config.write(HERMES_TELEGRAM.format(messenger=place.messenger.url))
    (place.home / ".env").write_text(f"TELEGRAM_BOT_TOKEN={place.messenger.token}\nGATEWAY_ALLOW_ALL_USERS=true\n")
    return Start([HERMES.program, "gateway", "run"], start.env)


def _nanobot_config(place: Place) -> Path:
    place.home.mkdir(exist_ok=True)
    defaults = {"workspace": str(place.folder / "work"), "model": "parrot", "provider": "custom"}
    settings: dict[str, object] = {
        "agents": {"defaults": defaults},
        "providers": {"custom": {"apiKey": "none", "apiBase": place.url}},
    }
    if place.messenger is not None:
        telegram = {"enabled": True, "token": place.messenger.token, "allowFrom": ["*"], "proxy": place.front}
        settings["channels"] = {"telegram": telegram}
    file = place.home / "config.json"
    file.write_text(json.dumps(settings))
    return file


def _nanobot(place: Place, words: str) -> Start:
    file = _nanobot_config(place)
    return Start([NANOBOT.program, "agent", "-m", words, "-c", str(file), "--no-markdown"], place.environment())


def _nanobot_gateway(place: Place) -> Start:
    argv = [NANOBOT.program, "gateway", "--foreground", "-c", str(_nanobot_config(place)), "--port", "18793"]
    return Start(argv, place.environment(SSL_CERT_FILE=str(place.ca)))


def _pi(place: Place, words: str) -> Start:
    settings = place.folder / ".pi" / "agent"
    settings.mkdir(parents=True, exist_ok=True)
    ours = {"baseUrl": place.url, "api": "openai-completions", "apiKey": "none", "models": [{"id": "parrot"}]}
    (settings / "models.json").write_text(json.dumps({"providers": {"loop": ours}}))
    return Start([PI.program, "--model", "loop/parrot", "-p", words], place.environment(PI_OFFLINE="1"))


CODEX_CONFIG = """\
model = "parrot"
model_provider = "loop"
[model_providers.loop]
name = "loop"
base_url = "{model}"
wire_api = "responses"
"""
BOLD = "--dangerously-bypass-approvals-and-sandbox"


def _codex(place: Place, words: str) -> Start:
    place.home.mkdir(exist_ok=True)
    model = place.model.url("openai-responses")
    (place.home / "config.toml").write_text(CODEX_CONFIG.format(model=model))
    argv = [CODEX.program, "exec", "--skip-git-repo-check", BOLD, words]
    return Start(argv, place.environment(CODEX_HOME=str(place.home)))


def _program(name: str, word: str) -> str:
    """The program installed by `make bench-rivals`, or found on PATH."""
    own = RIVALS / name / "bin" / word
    return str(own) if own.exists() else shutil.which(word) or str(own)


RAW = Contestant("raw httpx2", sys.executable, "terminal", _raw, None, _raw_rounds)
ALIPES = Contestant("alipes", str(BIN / "alipes"), "terminal", _alipes, _alipes_gateway)
HERMES = Contestant("hermes-agent", _program("hermes-agent", "hermes"), "terminal", _hermes, _hermes_gateway)
NANOBOT = Contestant("nanobot", _program("nanobot-ai", "nanobot"), "exec", _nanobot, _nanobot_gateway)
PI = Contestant("pi", str(RIVALS / "npm" / "node_modules" / ".bin" / "pi"), "bash", _pi)
CODEX = Contestant("codex", str(RIVALS / "npm" / "node_modules" / ".bin" / "codex"), "exec_command", _codex)
ALL = (RAW, ALIPES, HERMES, NANOBOT, PI, CODEX)
