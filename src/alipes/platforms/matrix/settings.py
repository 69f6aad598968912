"""Matrix as a platform: how it is configured and opened. What needs matrix-nio is loaded by opening."""

from pathlib import Path
from typing import Literal

from msgspec import Struct

from alipes.kernel.errors import ConfigError
from alipes.kernel.models import Secret
from alipes.kernel.platform import Platform
from alipes.platforms.connection import needed
from alipes.runtime.http.clients import ClientScope

SLACK = 15.0
"""Seconds beyond the poll's own, or half of it, after which no answer is coming: the connection is dead."""


class MatrixSettings(Struct, frozen=True, kw_only=True):
    folder: Path
    """Where files that people send are kept, our login and keys, and how far we have listened."""
    base_url: str
    user: str
    token: Secret = Secret()
    password: Secret = Secret()
    device: str = "alipes"
    encryption: bool = True
    group: Literal["mention", "all"] = "mention"
    per_user: bool = False
    poll: float = 30.0
    """Seconds that one question for news may wait for them."""
    patience: float = 30.0
    """Seconds in which a call must be answered."""
    largest: int = 50_000_000
    picture: int = 5_000_000
    """Bytes up to which a picture is shown to the model; larger ones are kept as files."""


def open_matrix(settings: MatrixSettings, scope: ClientScope) -> Platform:
    """Nothing is connected before `listen`. Raises ConfigError."""
    if not settings.user.startswith("@") or ":" not in settings.user:
        raise ConfigError(
            "Matrix needs to know who we are there: set matrix.user, as in @alipes:example.org."
        )
    if not settings.token and not settings.password:
        raise ConfigError(
            "Matrix needs an access token or a password: set the variable that [matrix] token_env or "
            "password_env names."
        )
    with needed("Matrix", "matrix-nio", "matrix"):
        from alipes.platforms.matrix.platform import Matrix  # noqa: PLC0415
    stall = max(settings.poll + SLACK, 4 * settings.patience)
    return Matrix(settings, scope.http("matrix", base_url=settings.base_url, stall=stall))
