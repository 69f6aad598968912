"""The catalog of models that a person named (`alipes model --refresh`): a file in the home, with source and date."""

from pathlib import Path

import msgspec
from msgspec import Struct

from alipes.config.paths import MODEL_FILE
from alipes.kernel.errors import ConfigError
from alipes.kernel.models import ModelFacts


class ModelFile(Struct, omit_defaults=True):
    models: dict[str, ModelFacts]
    """By provider/model."""
    source: str = ""
    date: str = ""
    """When it was fetched, as 2026-11-19."""


def parse_models(data: bytes, source: str, date: str) -> ModelFile:
    """The catalog in `data`: the form of this file, or only the models. Raises `ConfigError`."""
    try:
        raw = msgspec.json.decode(data)
        given = raw if isinstance(raw, dict) and isinstance(raw.get("models"), dict) else {"models": raw}
        found = msgspec.convert(given, ModelFile)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise ConfigError(f"{source} is no catalog of models: {error}") from error
    if wrong := next((name for name in found.models if not all(name.partition("/")) or not name.isprintable()), None):
        raise ConfigError(f"{source} is no catalog of models: {wrong[:60]!r} is not provider/model")
    return ModelFile(found.models, found.source or source, found.date or date)


def read_models(home: Path) -> ModelFile:
    """The catalog of the home. Raises `ConfigError`."""
    path = home / MODEL_FILE
    return parse_models(path.read_bytes(), str(path), "")


def write_models(home: Path, file: ModelFile) -> None:
    """Replace the catalog of the home."""
    part = home / f"{MODEL_FILE}.new"
    part.write_bytes(msgspec.json.format(msgspec.json.encode(file), indent=1))
    part.replace(home / MODEL_FILE)
