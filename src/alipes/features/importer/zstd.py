"""Decompresses zstd: with the standard library from Python 3.14 on, else with a package that is asked for."""

import io
from importlib import import_module
from typing import Any

from alipes.config.extras import explain_missing
from alipes.features.importer.formats import SourceError

EXTRA = "openclaw"


def decompress_zstd(data: bytes, what: str, limit: int) -> bytes:
    """`what`: what would have been read, for the sentence. Raises `SourceError`, also for more than `limit` bytes."""
    source, error_class = _open(io.BytesIO(data), what)
    try:
        with source:
            found: bytes = source.read(limit + 1)
    except (error_class, EOFError) as error:
        raise SourceError(f"{what} cannot be decompressed, so it was left out") from error
    if len(found) > limit:
        raise SourceError(f"{what} is too large when it is decompressed, so it was left out")
    return found


def _open(data: io.BytesIO, what: str) -> tuple[Any, type[Exception]]:
    """A file of the decompressed bytes, and what it raises for damaged ones."""
    for name in ("compression.zstd", "zstandard"):
        try:
            module: Any = import_module(name)
        except ModuleNotFoundError:
            continue
        is_ours = name == "zstandard"
        return module.ZstdDecompressor().stream_reader(data) if is_ours else module.ZstdFile(data), module.ZstdError
    raise SourceError(f"{what} was left out. {explain_missing(EXTRA)}")
