"""Settings of the messengers: what all have in common, and what each has of its own."""

from typing import Annotated, Literal, TypeAlias

from msgspec import Struct

from alipes.config.value_types import ALLOW, HOST, PORT, URL, VARIABLE, WEBHOOK, seconds
from alipes.kernel.models import Secret
from alipes.kernel.turns import BusyMode

Security: TypeAlias = Literal["tls", "starttls", "none"]
_Token: TypeAlias = Annotated[str, VARIABLE, "Variable with the bot's token."]
_Security: TypeAlias = Annotated[Security, "How the connection is protected; `none` only on this machine."]


class CommonPlatformConfig(Struct, frozen=True, kw_only=True):
    """Who may talk to the agent on a platform, and how chats behave there."""

    allow: Annotated[
        tuple[str, ...], ALLOW, "Ids of the people who may talk to the bot; `*` is everyone. Empty: only paired people."
    ] = ()
    owners: Annotated[
        tuple[str, ...], ALLOW, "Ids of the people who may also approve others and restart. Empty: everyone in `allow`."
    ] = ()
    progress: Annotated[
        Literal["off", "short", "full"],
        "What a chat shows of running tools: nothing, one line each, or their output as well.",
    ] = "short"
    group: Annotated[
        Literal["mention", "all"],
        "Which messages are answered in a group: those that mention or reply to the bot, or all.",
    ] = "mention"


class PluginPlatformConfig(CommonPlatformConfig, frozen=True, kw_only=True):
    """A messenger of a plugin."""

    busy: Annotated[
        Literal["auto", "interrupt", "queue", "steer"],
        "What happens to a message that arrives while a turn is running. auto: as the plugin asks for, else `steer`. "
        "`/busy` changes it for one conversation.",
    ] = "auto"


class MessengerConfig(CommonPlatformConfig, frozen=True, kw_only=True):
    """A built-in messenger."""

    busy: Annotated[
        BusyMode,
        "What happens to a message that arrives while a turn is running. `/busy` changes it for one conversation.",
    ] = "steer"

    @property
    def is_configured(self) -> bool:
        """True if everything needed to connect is set."""
        return all(self.needs.values())

    @property
    def needs(self) -> dict[str, bool]:
        """Settings and variables that are needed to connect, and whether each is set."""
        raise NotImplementedError


class ChatConfig(MessengerConfig, frozen=True, kw_only=True):
    """A messenger with groups."""

    per_user: Annotated[bool, "Whether each person in a group has a separate conversation."] = False


class TelegramConfig(ChatConfig, frozen=True, kw_only=True):
    token_env: _Token = "TELEGRAM_BOT_TOKEN"
    token: Secret = Secret()
    base_url: Annotated[str, URL, "URL of the Bot API."] = "https://api.telegram.org"
    mode: Annotated[
        Literal["poll", "webhook"], "How messages arrive: by polling the Bot API, or sent by it to `webhook_url`."
    ] = "poll"
    webhook_url: Annotated[
        str,
        WEBHOOK,
        "For `webhook`: the public URL, as in https://HOST/telegram; forward it to `/telegram` of `alipes serve`.",
    ] = ""
    poll: Annotated[
        float,
        seconds(1, 600),
        "Seconds that one poll may wait for messages. A dead connection is noticed within twice this time.",
    ] = 50.0

    @property
    def needs(self) -> dict[str, bool]:
        return {self.token_env: bool(self.token)}


class DiscordConfig(ChatConfig, frozen=True, kw_only=True):
    token_env: _Token = "DISCORD_BOT_TOKEN"
    token: Secret = Secret()
    base_url: Annotated[str, URL, "URL of Discord's API."] = "https://discord.com/api/v10"

    @property
    def needs(self) -> dict[str, bool]:
        return {self.token_env: bool(self.token)}


class SlackConfig(ChatConfig, frozen=True, kw_only=True):
    token_env: _Token = "SLACK_BOT_TOKEN"
    token: Secret = Secret()
    base_url: Annotated[str, URL, "URL of Slack's Web API."] = "https://slack.com/api"
    app_token_env: Annotated[str, VARIABLE, "Variable with the app-level token (`xapp-`), which receives messages."] = (
        "SLACK_APP_TOKEN"
    )
    app_token: Secret = Secret()

    @property
    def needs(self) -> dict[str, bool]:
        return {self.token_env: bool(self.token), self.app_token_env: bool(self.app_token)}


class MatrixConfig(ChatConfig, frozen=True, kw_only=True):
    base_url: Annotated[str, URL, "URL of your homeserver, as in https://HOST. Empty: Matrix is not served."] = ""
    user: Annotated[str, "User id of the bot, as in @alipes:HOST."] = ""
    token_env: Annotated[str, VARIABLE, "Variable with an access token of that user."] = "MATRIX_TOKEN"
    token: Secret = Secret()
    password_env: Annotated[
        str, VARIABLE, "Variable with the user's password, if there is no token: it is used once to get one."
    ] = "MATRIX_PASSWORD"
    password: Secret = Secret()
    device: Annotated[str, "Name of the device that a password login creates."] = "alipes"
    encryption: Annotated[bool, "Whether to read and write encrypted rooms. Keys are stored in the home directory."] = (
        True
    )

    @property
    def needs(self) -> dict[str, bool]:
        secret = bool(self.token) or bool(self.password)
        either = f"{self.token_env} or {self.password_env}"
        return {"matrix.base_url": bool(self.base_url), "matrix.user": bool(self.user), either: secret}


class EmailConfig(MessengerConfig, frozen=True, kw_only=True):
    address: Annotated[str, "The agent's mail address. Empty: mail is not served."] = ""
    user: Annotated[str, "User name for login. Empty: the address."] = ""
    password_env: Annotated[str, VARIABLE, "Variable with the password of the mailbox."] = "EMAIL_PASSWORD"
    password: Secret = Secret()
    imap_host: Annotated[str, HOST, "The IMAP server."] = ""
    imap_port: Annotated[int, PORT, "Its port."] = 993
    imap_security: _Security = "tls"
    smtp_host: Annotated[str, HOST, "The SMTP server. Empty: the IMAP server's host."] = ""
    smtp_port: Annotated[int, PORT, "Its port; use 587 with `starttls`."] = 465
    smtp_security: _Security = "tls"
    folder: Annotated[str, "The folder whose mail is answered."] = "INBOX"
    trust: Annotated[
        Literal["authenticated", "anyone"],
        "Which senders are believed: only mail that the receiving server authenticated (SPF, DKIM, DMARC in its "
        "Authentication-Results), or any From address, which anybody can forge.",
    ] = "authenticated"
    authserv: Annotated[
        str,
        "Name of the receiving server in Authentication-Results. Empty: the topmost header counts, if it names a "
        "server that received the mail.",
    ] = ""

    @property
    def needs(self) -> dict[str, bool]:
        password = {self.password_env: bool(self.password)}
        return {"email.address": bool(self.address), "email.imap_host": bool(self.imap_host)} | password


class IrcConfig(ChatConfig, frozen=True, kw_only=True):
    host: Annotated[str, HOST, "The IRC server. Empty: IRC is not served."] = ""
    port: Annotated[int, PORT, "Its port; use 6667 without TLS."] = 6697
    tls: Annotated[bool, "Whether to use TLS. Without it, others on the network can read along."] = True
    nick: Annotated[str, "The agent's nickname."] = "alipes"
    channels: Annotated[tuple[str, ...], ALLOW, "Channels to join, as in #general."] = ()
    password_env: Annotated[
        str, VARIABLE, "Variable with the account's password for SASL login. Not set: no login."
    ] = "IRC_PASSWORD"
    password: Secret = Secret()
    pace: Annotated[
        float,
        seconds(0, 60),
        "Seconds between lines after the first five; servers disconnect clients that send too fast.",
    ] = 0.5

    @property
    def needs(self) -> dict[str, bool]:
        return {"irc.host": bool(self.host)}


class Messengers(Struct, frozen=True):
    """The built-in messengers by name; each is a table at the top level of the file."""

    telegram: TelegramConfig = TelegramConfig()
    discord: DiscordConfig = DiscordConfig()
    slack: SlackConfig = SlackConfig()
    matrix: MatrixConfig = MatrixConfig()
    email: EmailConfig = EmailConfig()
    irc: IrcConfig = IrcConfig()

    def get(self, name: str) -> MessengerConfig:
        found: MessengerConfig = getattr(self, name)
        return found

    @property
    def configured(self) -> dict[str, MessengerConfig]:
        """Those with everything needed to connect."""
        return {name: config for name in MESSENGERS if (config := self.get(name)).is_configured}

    @property
    def notes(self) -> tuple[str, ...]:
        """A sentence for each messenger that is only partly set up."""
        partly = {name: self.get(name).needs for name in MESSENGERS}
        return tuple(
            f"{name} is not served: also set {', '.join(key for key, is_set in needs.items() if not is_set)}."
            for name, needs in partly.items()
            if any(needs.values()) and not all(needs.values())
        )


MESSENGERS = Messengers.__struct_fields__
