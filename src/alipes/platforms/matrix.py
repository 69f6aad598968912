"""Matrix as a platform: how it is configured and opened. A library it needs is loaded by opening."""

from pathlib import Path
from typing import Literal

from msgspec import Struct

from alipes.kernel.endpoints import Secret
from alipes.kernel.errors import ConfigError
from alipes.kernel.platforms import Platform
from alipes.runtime.clients import ClientScope


class MatrixSettings(Struct, frozen=True, kw_only=True):
    folder: Path
    """Where files that people send are kept, and how far we have listened."""
    base_url: str
    user: str
    token: Secret = Secret()
    password: Secret = Secret()
    device: str = "alipes"
    encryption: bool = True
    group: Literal["mention", "all"] = "mention"
    per_user: bool = False
    proxy: str = ""


def open_matrix(settings: MatrixSettings, scope: ClientScope) -> Platform:
    """Nothing is connected before `listen`. Raises ConfigError."""
    raise ConfigError("Matrix is not built yet.")
