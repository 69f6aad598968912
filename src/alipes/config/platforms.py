"""How people are met in chats, and how each messenger is reached. Values, and how they are read."""

from typing import Any, Literal, TypeAlias

from msgspec import Struct

from alipes.config.loader import Reading
from alipes.config.providers import read_secret
from alipes.kernel.models import Secret
from alipes.kernel.turns import Busy

Security: TypeAlias = Literal["tls", "starttls", "none"]


class Meeting(Struct, frozen=True, kw_only=True):
    """How people are met on a platform."""

    allow: tuple[str, ...] = ()
    owners: tuple[str, ...] = ()
    busy: Busy = "interrupt"
    progress: Literal["off", "short", "full"] = "short"
    group: Literal["mention", "all"] = "mention"


class Messenger(Meeting, frozen=True, kw_only=True):
    """What all messengers have in common."""

    per_user: bool = False

    @property
    def wanted(self) -> bool:
        """Is there all that it takes to reach it?"""
        raise NotImplementedError

    @property
    def needs(self) -> dict[str, bool]:
        """What it takes, by the names of settings and variables, and whether it is there."""
        return {}


class Bot(Messenger, frozen=True, kw_only=True):
    """One that is reached with a bot's token, and wanted when that is there."""

    token_env: str
    base_url: str
    token: Secret = Secret()

    @property
    def wanted(self) -> bool:
        return bool(self.token)


class Telegram(Bot, frozen=True, kw_only=True):
    token_env: str = "TELEGRAM_BOT_TOKEN"
    base_url: str = "https://api.telegram.org"
    mode: Literal["poll", "webhook"] = "poll"
    webhook_url: str = ""
    poll: float = 50.0


class Discord(Bot, frozen=True, kw_only=True):
    token_env: str = "DISCORD_BOT_TOKEN"
    base_url: str = "https://discord.com/api/v10"


class Slack(Bot, frozen=True, kw_only=True):
    token_env: str = "SLACK_BOT_TOKEN"
    base_url: str = "https://slack.com/api"
    app_token_env: str = "SLACK_APP_TOKEN"
    app_token: Secret = Secret()

    @property
    def wanted(self) -> bool:
        return all(self.needs.values())

    @property
    def needs(self) -> dict[str, bool]:
        return {self.token_env: bool(self.token), self.app_token_env: bool(self.app_token)}


class Matrix(Messenger, frozen=True, kw_only=True):
    base_url: str = ""
    user: str = ""
    token_env: str = "MATRIX_TOKEN"
    token: Secret = Secret()
    password_env: str = "MATRIX_PASSWORD"
    password: Secret = Secret()
    device: str = "alipes"
    encryption: bool = True

    @property
    def wanted(self) -> bool:
        return all(self.needs.values())

    @property
    def needs(self) -> dict[str, bool]:
        secret = bool(self.token) or bool(self.password)
        either = f"{self.token_env} or {self.password_env}"
        return {"matrix.base_url": bool(self.base_url), "matrix.user": bool(self.user), either: secret}


class Email(Messenger, frozen=True, kw_only=True):
    address: str = ""
    user: str = ""
    password_env: str = "EMAIL_PASSWORD"
    password: Secret = Secret()
    imap_host: str = ""
    imap_port: int = 993
    imap_security: Security = "tls"
    smtp_host: str = ""
    smtp_port: int = 465
    smtp_security: Security = "tls"
    folder: str = "INBOX"
    trust: Literal["authenticated", "anyone"] = "authenticated"
    authserv: str = ""

    @property
    def wanted(self) -> bool:
        return all(self.needs.values())

    @property
    def needs(self) -> dict[str, bool]:
        password = {self.password_env: bool(self.password)}
        return {"email.address": bool(self.address), "email.imap_host": bool(self.imap_host)} | password


class Irc(Messenger, frozen=True, kw_only=True):
    host: str = ""
    port: int = 6697
    tls: bool = True
    nick: str = "alipes"
    channels: tuple[str, ...] = ()
    password_env: str = "IRC_PASSWORD"
    password: Secret = Secret()
    pace: float = 0.5

    @property
    def wanted(self) -> bool:
        return bool(self.host)


class Messengers(Struct, frozen=True):
    """All that come with the house, by name."""

    telegram: Telegram = Telegram()
    discord: Discord = Discord()
    slack: Slack = Slack()
    matrix: Matrix = Matrix()
    email: Email = Email()
    irc: Irc = Irc()

    def named(self, name: str) -> Messenger:
        found: Messenger = getattr(self, name)
        return found

    @property
    def wanted(self) -> dict[str, Messenger]:
        """Those that can be reached."""
        every = {name: self.named(name) for name in MESSENGERS}
        return {name: each for name, each in every.items() if each.wanted}

    @property
    def notes(self) -> tuple[str, ...]:
        """A sentence for each that somebody began to set up."""
        half = {name: self.named(name).needs for name in MESSENGERS}
        return tuple(
            f"{name} is not served: set {', '.join(each for each, there in needs.items() if not there)}, too."
            for name, needs in half.items()
            if any(needs.values()) and not all(needs.values())
        )


MESSENGERS = Messengers.__struct_fields__


def messengers(reading: Reading, picked: dict[str, dict[str, Any]]) -> Messengers:
    """`picked`: the values of each table."""
    telegram = picked["telegram"]
    if telegram["mode"] == "webhook" and not telegram["webhook_url"]:
        needs = "needs telegram.webhook_url, where the Bot API finds us: give it, or poll"
        reading.fault("telegram.mode", "webhook", needs)
    made = {}
    for name, kind in Messengers.__annotations__.items():
        named = [key for key in picked[name] if key.endswith("_env")]
        secrets = {key.removesuffix("_env"): secret(reading, f"{name}.{key}") for key in named}
        made[name] = kind(**picked[name], **secrets)
    return Messengers(**made)


def meeting(reading: Reading, name: str) -> Meeting:
    """How people are met on a plugin's platform."""
    if not isinstance(reading.tables["platforms"][name], dict):
        return Meeting()  # it is among the problems already
    told = {each: reading.picked("platforms", name, each).value for each in Meeting.__struct_fields__}
    return Meeting(**fitting(told))


def fitting(picked: dict[str, Any]) -> dict[str, Any]:
    """Values as a Struct takes them."""
    return {name: tuple(value) if isinstance(value, list) else value for name, value in picked.items()}


def secret(reading: Reading, key: str) -> Secret:
    """What the variable holds that `key` names."""
    table, _, name = key.partition(".")
    variable = str(reading.picked(table, name).value)
    return read_secret(reading, variable, needed=table in reading.tables, typed="password" in name)
