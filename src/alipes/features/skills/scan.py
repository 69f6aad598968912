"""Looks for what a person should see before they accept a skill: hidden text, secrets, dangerous commands, and
sentences that try to get around questions. It can only warn: what a skill does is asked about like everything else."""

import re
import unicodedata
from collections.abc import Iterable, Iterator
from functools import cache
from importlib import import_module

from msgspec import Struct

from alipes.config.display import looks_secret
from alipes.features.skills.versions import SkillFile, SkillFiles
from alipes.kernel.approvals import reveal
from alipes.kernel.formatting import format_excerpt
from alipes.tools.common import Places

MAX_FINDINGS = 200
MAX_CHECKED_CHARS = 400_000
_FENCE = re.compile(
    r"^[ \t]*(?:```|~~~)[ \t]*(?:bash|sh|shell|zsh|console|terminal)\b[^\n]*\n(.*?)^[ \t]*(?:```|~~~)", re.M | re.S
)
_SHELL_FILE = re.compile(r"\.(?:sh|bash|zsh)$|(?:^|/)(?:Makefile|justfile)$")
_QUIET_RULES = frozenset(("unclear", "write", "unseen"))
"""Rules that say nothing about an example."""
_PIPED = re.compile(r"\b(?:curl|wget|base64)\b[^|]*\|\s*(?:sudo\s+)?(?:ba|z|da)?sh\b")
"""A program from the network, or a hidden one."""
_EMOJI_JOINTS = "\u200d\ufe0f\ufe0e"
_PLACEHOLDER = re.compile(r"(?i)your|example|placeholder|xxx|\.\.\.|<|\{|\$|sample|dummy|abc123|insert|replace")
_READABLE = re.compile(r"[a-z]{5}|[A-Z]{6}")
_HASH = re.compile(r"(?:0x|sha\d+[:-])?[0-9a-f]+|0x[0-9A-Fa-f]+")
_WORD = re.compile(r"[^\s\"'`,;()\[\]<>|]+")
_PHRASES = (
    r"(?:ignore|disregard|forget|override)\s+(?:all\s+|any\s+)?(?:of\s+)?(?:the\s+|your\s+|my\s+)?"
    r"(?:previous|prior|above|earlier|system|safety|other)\s+(?:instructions?|rules?|prompts?|messages?|guidelines?)",
    r"(?:do\s+not|don't|never|without)\s+(?:tell|telling|inform|informing|mention|mentioning|show|showing|notify|"
    r"alert)\w*\s+(?:this\s+to\s+|it\s+to\s+)?the\s+(?:user|human|person|owner)",
    r"(?:bypass|circumvent|disable|skip|turn\s+off|work\s+around)\s+(?:the\s+|all\s+|any\s+)?"
    r"(?:approval|permission|confirmation|sandbox|safety|security)\w*",
    r"(?:approve|accept|allow)\s+(?:everything|all\s+(?:calls|commands|requests|tools)|this\s+yourself)",
    r"(?:send|post|upload|exfiltrate|forward)\s+(?:\w+\s+){0,4}(?:credentials|secrets?|api[ _-]?keys?|tokens?|"
    r"passwords?|\.env\b|private\s+keys?|ssh\s+keys?)",
    r"you\s+are\s+(?:now\s+)?(?:in\s+)?(?:developer|god|jailbreak|unrestricted|dan)\s+mode",
    r"(?:reveal|print|output|repeat)\s+(?:your\s+|the\s+)(?:system\s+prompt|hidden\s+instructions)",
)


@cache
def _phrases() -> tuple[re.Pattern[str], ...]:
    return tuple(re.compile(pattern, re.IGNORECASE) for pattern in _PHRASES)


class SkillFinding(Struct, frozen=True):
    place: str
    """File and line."""
    kind: str
    """`hidden text`, `secret`, `command` or `instruction`."""
    says: str


def scan_skill(files: SkillFiles, places: Places) -> tuple[SkillFinding, ...]:
    """Warnings about the files of a skill. Call it in a thread."""
    found: dict[SkillFinding, None] = {}
    for path, file in sorted(files.items()):
        text = _decode(file)
        if text is None:
            continue
        for finding in _scan_text(path, text, places):
            found[finding] = None
            if len(found) >= MAX_FINDINGS:
                return tuple(found)
    return tuple(found)


def describe_findings(findings: Iterable[SkillFinding]) -> str:
    """The kinds of findings, for a question; empty if there are none."""
    kinds = dict.fromkeys(each.kind for each in findings)
    return f"it contains: {', '.join(kinds)}" if kinds else ""


def _scan_text(path: str, text: str, places: Places) -> Iterator[SkillFinding]:
    for number, line in enumerate(text.splitlines(), 1):
        place = f"{path}:{number}"
        if hidden := find_hidden(line):
            yield SkillFinding(place, "hidden text", f"hidden characters {', '.join(hidden)}")
        if secret := next(filter(_is_secret, _WORD.findall(line)), ""):
            yield SkillFinding(place, "secret", f"looks like a key or token: {secret[:4]}…")
        for phrase in _phrases():
            if said := phrase.search(line):
                yield SkillFinding(place, "instruction", format_excerpt(reveal(said[0]), 100))
    if _SHELL_FILE.search(path):
        yield from _scan_command(path, text, 1, places)
    elif path.endswith((".md", ".mdx", ".txt")):
        yield from _scan_document(path, text[:MAX_CHECKED_CHARS], places)


def _scan_document(path: str, text: str, places: Places) -> Iterator[SkillFinding]:
    """The commands in its blocks of code, and in sentences those that run text as a program."""
    seen = set[str]()
    for block in _FENCE.finditer(text):
        for finding in _scan_command(path, block[1], text.count("\n", 0, block.start(1)) + 1, places):
            seen.add(finding.place)
            yield finding
    for number, line in enumerate(text.splitlines(), 1):
        if (place := f"{path}:{number}") not in seen and len(line) <= 2000 and (piped := _PIPED.search(line)):
            yield SkillFinding(place, "command", f"runs text as a program: {format_excerpt(reveal(piped[0]), 80)}")


def _scan_command(path: str, text: str, line: int, places: Places) -> Iterator[SkillFinding]:
    """The risks of a block of commands, line by line: an example need not be a whole script."""
    if len(text) > MAX_CHECKED_CHARS:
        return
    for number, command in enumerate(text.splitlines(), line):
        command = command.strip().removeprefix("$ ")
        if not command or command.startswith("#") or len(command) > 2000:
            continue
        risk = import_module("alipes.agent.approval.shell.host.rules").judge(command, places, "/project")
        piped = _PIPED.search(command) is not None
        if risk is not None and (piped or (risk.rule not in _QUIET_RULES and not risk.unseen)):
            yield SkillFinding(f"{path}:{number}", "command", f"{risk.reason}: {format_excerpt(reveal(command), 80)}")


def find_hidden(text: str) -> tuple[str, ...]:
    """Characters that people do not see, such as `U+200B`; joints of emoji do not count."""
    if text.isascii() and text.isprintable():
        return ()
    found: dict[str, None] = {}
    for at, char in enumerate(text):
        if char in _EMOJI_JOINTS and at and ord(text[at - 1]) > 0x2000:
            continue
        if char in "\t\ufeff" and at == 0:
            continue
        hidden = unicodedata.category(char) in ("Cf", "Co", "Cs", "Cn") or reveal(char) != char
        if hidden and char != "\xad" and not char.isspace():
            found[f"U+{ord(char):04X}"] = None
    return tuple(found)


def _is_secret(word: str) -> bool:
    """True for a key or token. A long name of a function or a hash is neither."""
    if len(word) > 300 or not word.isascii() or not looks_secret(word) or _PLACEHOLDER.search(word):
        return False
    starts_like_key = looks_secret(word[:20])
    random = sum(char.isdigit() for char in word) >= 4 and not _READABLE.search(word) and not _HASH.fullmatch(word)
    return starts_like_key or random


def _decode(file: SkillFile) -> str | None:
    try:
        return file.data.decode()
    except UnicodeDecodeError:
        return None
