"""Logging in to a homeserver: by a token of the operator's, or by one that is made once with the password."""

from typing import Any

import nio  # type: ignore[import-untyped]

from alipes.kernel.errors import ConfigError, DeliveryError
from alipes.platforms.matrix import MatrixSettings
from alipes.platforms.matrix.client import Client, Refusal, given
from alipes.platforms.matrix.kept import Kept, Login
from alipes.platforms.matrix.outbound import ours

LOGGED_OUT = ("M_UNKNOWN_TOKEN", "M_MISSING_TOKEN")


class LoggedOut(Exception):
    """The homeserver ended our login."""


def judged(theirs: Exception, _count: int) -> DeliveryError:
    """What keeps us from listening. Raises `LoggedOut` when waiting does not help."""
    if isinstance(theirs, Refusal) and theirs.code in LOGGED_OUT:
        raise LoggedOut(theirs.why) from theirs
    return ours(theirs, "waiting for messages")


async def log_in(client: Client, settings: MatrixSettings, kept: Kept) -> Login:
    """Who we are. Raises ConfigError where only the operator can help, else `TROUBLE` kinds."""
    if settings.token:
        return await _by_token(client, settings)
    known = kept.login()
    if known.user != settings.user:
        known = Login()
    if known.token:
        return known
    made = await _by_password(client, settings, known.device)
    kept.log_in(made)
    return made


async def _by_token(client: Client, settings: MatrixSettings) -> Login:
    client.access_token = settings.token.reveal()
    try:
        told: Any = given(await client.whoami(), nio.WhoamiResponse)
    except Refusal as refused:
        if refused.code in LOGGED_OUT:
            raise bad_token() from refused
        _nowhere(refused, settings)
        raise
    if told.user_id != settings.user:
        raise ConfigError(
            f"The token that [matrix] token_env names belongs to {told.user_id}, not to {settings.user}: "
            "correct matrix.user, or use a token of that user."
        )
    if not told.device_id and settings.encryption:
        raise ConfigError(
            "The Matrix token belongs to no device, so nothing can be encrypted with it: log in with a "
            "password instead, or set matrix.encryption = false."
        )
    return Login(told.user_id, told.device_id or "none", settings.token.reveal())


async def _by_password(client: Client, settings: MatrixSettings, device: str) -> Login:
    asked = {
        "type": "m.login.password",
        "identifier": {"type": "m.id.user", "user": settings.user},
        "password": settings.password.reveal(),
        "initial_device_display_name": settings.device,
    }
    if device:  # its keys are here
        asked["device_id"] = device
    try:
        told: Any = given(await client.login_raw(asked), nio.LoginResponse)
    except Refusal as refused:
        _nowhere(refused, settings)
        if refused.wait is None and 400 <= refused.status < 500:
            raise ConfigError(
                f"The homeserver does not let {settings.user} in with the password that [matrix] "
                f"password_env names: {refused.why}."
            ) from refused
        raise
    return Login(told.user_id, told.device_id, told.access_token, made=True)


def _nowhere(refused: Refusal, settings: MatrixSettings) -> None:
    if refused.status == 404:
        server = settings.user.partition(":")[2]
        raise ConfigError(
            f"There is no Matrix homeserver at matrix.base_url ({settings.base_url}): the address is told at "
            f"https://{server}/.well-known/matrix/client."
        ) from refused


def bad_token() -> ConfigError:
    return ConfigError(
        "The homeserver does not know the token that [matrix] token_env names: make a new one, or give a "
        "password instead."
    )


def lost_keys(settings: MatrixSettings) -> ConfigError:
    return ConfigError(
        "The keys of the device to which the Matrix token belongs are not ours, or were lost, so that nobody "
        "could read what we encrypt: make a token for alipes alone, and a new one if its folder was deleted "
        f"({settings.folder}); or give a password instead."
    )
