"""Embeddings of short texts by the package `wordllama`, if it is installed. It brings its weights: nothing is
downloaded, and nothing is imported before the first comparison."""

import asyncio
from collections.abc import Sequence
from functools import cache
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

TOKENIZER, WEIGHTS = "tokenizers/l2_supercat_tokenizer_config.json", "weights/l2_supercat_256.safetensors"
MIN_SIMILARITY = 0.2
"""Texts below this have hardly anything in common."""


def find_package() -> Path | None:
    """The folder of the package, if it is installed with its weights."""
    spec = find_spec("wordllama")
    folder = None if spec is None or spec.origin is None else Path(spec.origin).parent
    return folder if folder is not None and (folder / TOKENIZER).exists() and (folder / WEIGHTS).exists() else None


async def compare_texts(query: str, texts: Sequence[str]) -> tuple[float, ...] | None:
    """How similar each text is to the query, from 0 to 1; None if no embeddings are installed or they do not work."""
    if find_package() is None:
        return None
    return await asyncio.to_thread(_compare, query, tuple(texts))


def _compare(query: str, texts: tuple[str, ...]) -> tuple[float, ...] | None:
    try:
        vectors = _load_model().embed([query, *texts], norm=True)
    except (ImportError, OSError, ValueError, TypeError, AttributeError, LookupError):
        return None  # another version of the package
    scores = vectors[1:] @ vectors[0]
    return tuple(score if (score := float(each)) >= MIN_SIMILARITY else 0.0 for each in scores)


@cache
def _load_model() -> Any:
    """The model. Its own loader would download the tokenizer that the package has."""
    folder = find_package()
    if folder is None:
        raise ImportError("wordllama is not installed")
    tokenizer = import_module("tokenizers").Tokenizer.from_file(str(folder / TOKENIZER))
    with import_module("safetensors").safe_open(folder / WEIGHTS, framework="np", device="cpu") as file:
        weights = file.get_tensor("embedding.weight")
    return import_module("wordllama.inference").WordLlamaInference(weights, tokenizer)
