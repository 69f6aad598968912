"""The settings of messengers: what all have in common, and what each has of its own."""

from alipes.config.value_types import (
    ALLOW,
    ENDPOINT,
    FLAG,
    HOST,
    TEXT,
    URL,
    VARIABLE,
    WEBHOOK,
    Key,
    choice,
    number,
    whole,
)

BUSY = choice("interrupt", "queue", "steer")
_TLS = choice("tls", "starttls", "none")


def _messenger(name: str, base_url: str, address: str) -> tuple[Key, ...]:
    """What those have in common that are reached with a bot's token."""
    return (
        Key(
            f"{name}.token_env",
            VARIABLE,
            f"{name.upper()}_BOT_TOKEN",
            "The variable that holds the bot's token.",
        ),
        Key(f"{name}.base_url", URL, base_url, address),
        *_met(name),
    )


def _met(name: str) -> tuple[Key, ...]:
    """What all messengers have in common."""
    return (
        *manners(name),
        Key(
            f"{name}.per_user",
            FLAG,
            False,
            "Whether each person in a group has a conversation of their own.",
        ),
    )


def manners(name: str) -> tuple[Key, ...]:
    """How people are met, on any platform."""
    return (
        Key(
            f"{name}.allow",
            ALLOW,
            [],
            "Ids of those who may speak to the bot; `*` is everyone. Empty: only who was let in by a code.",
        ),
        Key(
            f"{name}.owners",
            ALLOW,
            [],
            "Ids of those who may also let others in and restart. Empty: all of `allow`.",
        ),
        Key(
            f"{name}.busy",
            BUSY,
            "interrupt",
            "What a message does that arrives while a turn runs. `/busy` changes it for one conversation.",
        ),
        Key(
            f"{name}.progress",
            choice("off", "short", "full"),
            "short",
            "What a chat sees of the tools at work: nothing, a line for each, or also what they say.",
        ),
        Key(
            f"{name}.group",
            choice("mention", "all"),
            "mention",
            "What is answered in a group: what mentions the bot or answers it, or everything.",
        ),
    )


MESSENGER_KEYS = (
    *_messenger("telegram", "https://api.telegram.org", "Address of the Bot API."),
    Key(
        "telegram.mode",
        choice("poll", "webhook"),
        "poll",
        "How messages arrive: the Bot API is asked for them, or brings them to `webhook_url`.",
    ),
    Key(
        "telegram.webhook_url",
        WEBHOOK,
        "",
        "With `webhook`: where the Bot API finds us, as in https://HOST/telegram; what arrives there is "
        "passed on to `/telegram` of `alipes serve`.",
    ),
    Key(
        "telegram.poll",
        number(1, 600, "seconds"),
        50.0,
        "Seconds that one question for messages may wait for them. A dead connection is noticed within twice "
        "this time.",
    ),
    *_messenger("discord", "https://discord.com/api/v10", "Address of Discord's API."),
    *_messenger("slack", "https://slack.com/api", "Address of Slack's Web API."),
    Key(
        "slack.app_token_env",
        VARIABLE,
        "SLACK_APP_TOKEN",
        "The variable that holds the app's own token (`xapp-`), with which messages arrive.",
    ),
    Key("matrix.base_url", URL, "", "Address of your homeserver, as in https://HOST. Empty: not served."),
    Key("matrix.user", TEXT, "", "Who we are there, as in @alipes:HOST."),
    Key(
        "matrix.token_env", VARIABLE, "MATRIX_TOKEN", "The variable that holds an access token of that user."
    ),
    Key(
        "matrix.password_env",
        VARIABLE,
        "MATRIX_PASSWORD",
        "The variable that holds the user's password, where there is no token: one is made with it, once.",
    ),
    Key("matrix.device", TEXT, "alipes", "What our device is called, where it is logged in by password."),
    Key(
        "matrix.encryption",
        FLAG,
        True,
        "Whether encrypted rooms are read and written. Keys are kept in the home folder.",
    ),
    *_met("matrix"),
    Key("email.address", TEXT, "", "Our own mail address. Empty: not served."),
    Key("email.user", TEXT, "", "The name to log in with. Empty: the address."),
    Key(
        "email.password_env",
        VARIABLE,
        "EMAIL_PASSWORD",
        "The variable that holds the password of the mailbox.",
    ),
    Key("email.imap_host", HOST, "", "The server that has our mailbox."),
    Key("email.imap_port", whole(1, 65535), 993, "Its port."),
    Key("email.imap_security", _TLS, "tls", "How the way to it is protected; `none` only on this machine."),
    Key("email.smtp_host", HOST, "", "The server that takes our mail. Empty: the one of the mailbox."),
    Key("email.smtp_port", whole(1, 65535), 465, "Its port; 587 goes with `starttls`."),
    Key("email.smtp_security", _TLS, "tls", "How the way to it is protected; `none` only on this machine."),
    Key("email.folder", TEXT, "INBOX", "The folder whose mail is answered."),
    Key(
        "email.trust",
        choice("authenticated", "anyone"),
        "authenticated",
        "Whose word counts for who they are: mail that the receiving server vouches for (SPF, DKIM, DMARC "
        "in its Authentication-Results), or the sender's address as it stands, which anybody can write.",
    ),
    Key(
        "email.authserv",
        TEXT,
        "",
        "The name by which the receiving server signs its Authentication-Results. Empty: the topmost are "
        "its, if they bear the name of a server that received the mail.",
    ),
    *manners("email"),
    Key("irc.host", HOST, "", "The IRC server. Empty: not served."),
    Key("irc.port", whole(1, 65535), 6697, "Its port; 6667 goes without TLS."),
    Key(
        "irc.tls",
        FLAG,
        True,
        "Whether the way to it is protected; without it anybody on the way reads along.",
    ),
    Key("irc.nick", TEXT, "alipes", "What we are called there."),
    Key("irc.channels", ALLOW, [], "Channels that are joined, as in #house."),
    Key(
        "irc.password_env",
        VARIABLE,
        "IRC_PASSWORD",
        "The variable that holds our account's password, with which we log in (SASL). Not set: we do not.",
    ),
    Key(
        "irc.pace",
        number(0, 60, "seconds"),
        0.5,
        "Seconds between two lines after the first five; servers throw out who is too fast.",
    ),
    *_met("irc"),
    *manners("platforms.*"),
    Key(
        "gateway.pairing",
        FLAG,
        True,
        "Whether a stranger who writes is given a code, with which `alipes pair CODE` lets them in. Else "
        "strangers hear nothing.",
    ),
    Key(
        "gateway.expiry",
        number(60, 2_592_000, "seconds"),
        43_200.0,
        "Seconds after which something that could not be delivered is not sent any more; the chat is told.",
    ),
    Key(
        "gateway.tries",
        whole(1, 1000),
        8,
        "How often a message that the platform refuses is sent before it is given up; `alipes serve outbox` "
        "shows it then.",
    ),
    Key(
        "gateway.stt_command",
        TEXT,
        "",
        "A command that prints the words of a voice note; `{file}` in it stands for the file, else the file "
        "comes last. Without one and without `stt_url`, who sends a voice note is told that nobody listens.",
    ),
    Key(
        "gateway.stt_url",
        ENDPOINT,
        "",
        "The whole address of a service that does the same, and takes what OpenAI's transcription takes, as "
        "in https://HOST/v1/audio/transcriptions.",
    ),
    Key("gateway.stt_model", TEXT, "whisper-1", "The model that this service is asked for."),
    Key("gateway.stt_key_env", VARIABLE, "", "The variable that holds its key. Empty: no key is sent."),
)
