"""Answers with a JSON schema: what the model is asked for, how its answer is read, and where it does not match."""

import asyncio
import os
import re
import sys
import tempfile
from collections.abc import Iterator, Mapping

import msgspec

from alipes.agent import json_schema
from alipes.config.environment import process_environment
from alipes.config.extras import explain_missing
from alipes.kernel.errors import ConfigError
from alipes.kernel.messages import Json, Message, notice
from alipes.kernel.turns import Ending
from alipes.runtime.processes.child import open_child

MAX_SCHEMA_BYTES = 200_000
MAX_REPAIRS = 1
"""How often the model may correct an answer that does not match."""
PATTERN_SECONDS = 5.0
"""Schemas with patterns are checked in a process of their own, since some patterns take forever; it has this long."""
_REPAIR = "Your answer does not match its JSON schema at "
_FENCED = re.compile(r"```[\w-]*[ \t]*\n(.*?)\n[ \t]*```", re.DOTALL)
_PATTERN = re.compile(r'"pattern(?:Properties)?" ?:')


class AnswerSchema:
    """A schema that was checked."""

    def __init__(self, schema: Mapping[str, Json]) -> None:
        """Raises `ConfigError` if it is not a schema, or if the validator is not installed."""
        self._text = _encode(schema)
        self._last = ("", "$: it is empty")
        """The text that was checked last, and what is wrong with it."""
        self._is_slow = bool(_PATTERN.search(self._text))
        try:
            self._validator = json_schema.open_validator(self._text)
        except ImportError as missing:
            raise ConfigError(explain_missing("schema")) from missing
        except ValueError as error:
            raise ConfigError(f"The schema {error}.") from error

    @property
    def prompt(self) -> str:
        """The part of the system prompt that asks for it."""
        return f"\n\n{format_prompt(self._text)}"

    async def read(self, text: str) -> str:
        """The document in an answer, without words or a fence around it; the text itself if none matches."""
        for candidate in dict.fromkeys(_candidates(text)):
            if not await self.find_mismatch(candidate):
                return candidate
        return text

    async def find_mismatch(self, text: str) -> str:
        """The path in the document and what is wrong there; empty if it matches."""
        if self._last[0] != text:
            self._last = text, await self._check(text)
        return self._last[1]

    async def _check(self, text: str) -> str:
        try:
            document = msgspec.json.decode(text.encode())
        except (msgspec.DecodeError, UnicodeEncodeError) as error:
            return f"$: it is not JSON ({error})"
        except RecursionError:
            return "$: it is nested too deeply"
        if self._is_slow:
            return await _check_apart(self._text, text)
        return json_schema.find_error(self._validator, document)

    async def judge(self, last: Message, said: tuple[Message, ...]) -> tuple[Ending, str] | Message:
        """How a turn with this answer ends, or what the model is asked to correct."""
        mismatch = await self.find_mismatch(last.text)
        if not mismatch:
            return "answered", ""
        repairs = sum(message.role == "notice" and message.text.startswith(_REPAIR) for message in said)
        if repairs >= MAX_REPAIRS:
            return "gave_up", f"the answer does not match its schema at {mismatch}"
        return notice(f"{_REPAIR}{mismatch}. Answer again with the whole corrected JSON document and nothing else.")


def parse_schema(text: str) -> dict[str, Json]:
    """A schema as a person wrote it, checked. Raises `ConfigError`."""
    try:
        return check_schema(msgspec.json.decode(text.encode()))
    except (msgspec.DecodeError, UnicodeEncodeError, RecursionError) as error:
        raise ConfigError(f"The schema is not JSON: {error}.") from error


def check_schema(schema: object) -> dict[str, Json]:
    """Raises `ConfigError` unless it is a JSON schema that can be used."""
    if not isinstance(schema, dict) or not schema:
        raise ConfigError('The schema must be a JSON object such as {"type": "object"}.')
    AnswerSchema(schema)
    return schema


def format_prompt(schema: str) -> str:
    """What a model is asked for."""
    return (
        "Your final answer must be one JSON document that matches this JSON schema, and nothing else: no words "
        f"around it and no code fence.\n{schema}"
    )


def _encode(schema: Mapping[str, Json]) -> str:
    try:
        text = msgspec.json.encode(schema)
    except RecursionError as error:
        raise ConfigError("The schema is nested too deeply.") from error
    if len(text) > MAX_SCHEMA_BYTES:
        raise ConfigError(f"The schema has {len(text)} bytes; the limit is {MAX_SCHEMA_BYTES}.")
    return text.decode()


def _candidates(text: str) -> Iterator[str]:
    """What may be the document, the whole answer first."""
    yield text.strip()
    yield from reversed([match[1].strip() for match in _FENCED.finditer(text)])
    for opening, closing in ("{}", "[]"):
        start, end = text.find(opening), text.rfind(closing)
        if 0 <= start < end:
            yield text[start : end + 1]


async def _check_apart(schema: str, document: str) -> str:
    """The same as `json_schema.find_error`, in a process that can be ended."""
    with tempfile.NamedTemporaryFile(suffix=".json") as file:
        file.write(msgspec.json.encode({"schema": schema, "document": document}))
        file.flush()
        argv, output = (sys.executable, "-I", json_schema.__file__, file.name), b""
        try:
            async with asyncio.timeout(PATTERN_SECONDS):
                async with open_child(argv, cwd=os.sep, env=process_environment()) as child:
                    while piece := await child.read():
                        output += piece
                    status = await child.wait()
        except TimeoutError:
            return f"$: a pattern of the schema took more than {PATTERN_SECONDS:.0f} s"
    return output.decode(errors="replace") if status == 0 else "$: it could not be checked"
