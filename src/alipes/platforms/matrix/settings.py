"""Settings of Matrix."""

from pathlib import Path
from typing import Literal, Self

from msgspec import Struct

from alipes.config.settings import Settings
from alipes.kernel.errors import ConfigError
from alipes.kernel.models import Secret

POLL_GRACE = 15.0
"""Seconds beyond the poll time, or half of it, after which a connection counts as dead."""


class MatrixSettings(Struct, frozen=True, kw_only=True):
    folder: Path
    """Where received files, login, keys and the sync position are stored."""
    base_url: str
    user: str
    token: Secret = Secret()
    password: Secret = Secret()
    device: str = "alipes"
    encryption: bool = True
    group: Literal["mention", "all"] = "mention"
    per_user: bool = False
    poll: float = 30.0
    """Duration of a long poll, in seconds."""
    patience: float = 30.0
    """Timeout of a call, in seconds."""
    largest: int = 50_000_000
    """Size limit for received files, in bytes."""
    picture: int = 5_000_000
    """Pictures up to this many bytes are shown to the model; larger ones are saved as files."""

    @classmethod
    def from_config(cls, settings: Settings, folder: Path) -> Self:
        chosen = settings.messengers.matrix
        return cls(
            base_url=chosen.base_url,
            user=chosen.user,
            token=chosen.token,
            password=chosen.password,
            device=chosen.device,
            encryption=chosen.encryption,
            folder=folder,
            group=chosen.group,
            per_user=chosen.per_user,
        )

    def check(self) -> None:
        if not self.user.startswith("@") or ":" not in self.user:
            raise ConfigError("Matrix needs your bot's user id: set matrix.user, as in @alipes:example.org.")
        if not self.token and not self.password:
            raise ConfigError(
                "Matrix needs an access token or a password: set the variable that [matrix] token_env or "
                "password_env names."
            )
