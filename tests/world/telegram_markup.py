"""Parses message markup as the Bot API does, with the same errors."""

import html
import re
from typing import Any, TypeAlias

Entity: TypeAlias = dict[str, Any]

TAGS = {
    "b": "bold", "strong": "bold", "i": "italic", "em": "italic", "u": "underline", "ins": "underline",
    "s": "strikethrough", "strike": "strikethrough", "del": "strikethrough", "tg-spoiler": "spoiler",
    "code": "code", "pre": "pre", "a": "text_link", "span": "spoiler", "blockquote": "blockquote",
    "tg-emoji": "custom_emoji",
}  # fmt: skip
RESERVED = "_*[]()~`>#+-=|{}.!"
_REFERENCE = re.compile(r"&(?:lt|gt|amp|quot|#\d{1,7}|#x[0-9a-fA-F]{1,6});")
_SPECIAL = re.compile("[<&]")
_TAG = re.compile(r"<(/?)([a-zA-Z0-9-]+)((?:\s+[a-zA-Z-]+(?:\s*=\s*(?:\"[^\"]*\"|'[^']*'|[^\s>\"'=]+))?)*)\s*>")
_ATTRIBUTE = re.compile(r"([a-zA-Z-]+)(?:\s*=\s*(?:\"([^\"]*)\"|'([^']*)'|([^\s>\"'=]+)))?")
_LINK = re.compile(r"(?:https?|tg|ton)://[^\s/?#]+|mailto:", re.IGNORECASE)


class Unparsable(Exception):
    """What follows "can't parse entities: " in the answer."""


def units(text: str) -> int:
    return len(text.encode("utf-16-le")) // 2


def parse(text: str, mode: str) -> tuple[str, list[Entity]]:
    """The visible text and its entities."""
    match mode.lower():
        case "":
            return text, found(text)
        case "html":
            shown, entities = _html(text)
        case "markdownv2":
            shown, entities = _Markdown(text).read()
        case "markdown":
            shown, entities = _legacy(text)
        case _:
            raise Unparsable(f"unsupported parse_mode {mode}")
    return shown, sorted(entities, key=lambda entity: (entity["offset"], -entity["length"]))


def found(text: str) -> list[Entity]:
    """Entities that the server finds by itself: mentions, commands, URLs."""
    entities = []
    for kind, pattern in (
        ("mention", r"(?<!\w)@[A-Za-z]\w{2,31}"),
        ("bot_command", r"(?:(?<=\s)|^)/[A-Za-z0-9_]{1,32}(?:@\w{3,32})?\b"),
        ("url", r"https?://\S+"),
    ):
        for match in re.finditer(pattern, text):
            where = {"offset": units(text[: match.start()]), "length": units(match[0])}
            entities.append({"type": kind, **where})
    return sorted(entities, key=lambda entity: entity["offset"])


def _html(text: str) -> tuple[str, list[Entity]]:
    out: list[str] = []
    opened: list[tuple[str, dict[str, str], int]] = []
    entities: list[Entity] = []
    size = place = 0

    def at(position: int) -> int:
        return len(text[:position].encode())

    while place < len(text):
        if text[place] == "<":
            match = _TAG.match(text, place)
            if match is None:
                raise Unparsable(f"Unclosed start tag at byte offset {at(place)}")
            closing, name = match[1], match[2].lower()
            if closing:
                if not opened:
                    raise Unparsable(f"Unexpected end tag at byte offset {at(place)}")
                tag, attributes, begun = opened.pop()
                if tag != name:
                    raise Unparsable(
                        f'Unmatched end tag at byte offset {at(place)}, expected "</{tag}>", found "</{name}>"'
                    )
                if size > begun:
                    entities += _entity(tag, attributes, begun, size - begun)
            else:
                opened.append((name, _attributes(name, match[3], at(place)), size))
            place = match.end()
            continue
        match = _REFERENCE.match(text, place)
        special = _SPECIAL.search(text, place + 1)
        source = match[0] if match else text[place : special.start() if special else len(text)]
        shown = html.unescape(source) if match else source
        place += len(source)
        out.append(shown)
        size += units(shown)
    if opened:
        raise Unparsable(f'Can\'t find end tag corresponding to start tag "{opened[-1][0]}"')
    return "".join(out), _fixed(entities)


def _attributes(name: str, source: str, at: int) -> dict[str, str]:
    if name not in TAGS:
        raise Unparsable(f'Unsupported start tag "{name}" at byte offset {at}')
    given = {m[1].lower(): html.unescape(m[2] or m[3] or m[4] or "") for m in _ATTRIBUTE.finditer(source)}
    if name == "span" and given.get("class") != "tg-spoiler":
        raise Unparsable(f'Tag "span" must have class "tg-spoiler" at byte offset {at}')
    return given


def _entity(tag: str, attributes: dict[str, str], offset: int, length: int) -> list[Entity]:
    entity: Entity = {"type": TAGS[tag], "offset": offset, "length": length}
    match tag:
        case "a":
            if not _LINK.match(attributes.get("href", "")):
                return []  # without its link, as in the real one
            entity["url"] = attributes["href"]
        case "code" if attributes.get("class", "").startswith("language-"):
            entity["language"] = attributes["class"].removeprefix("language-")
        case "blockquote" if "expandable" in attributes:
            entity["type"] = "expandable_blockquote"
        case "tg-emoji":
            entity["custom_emoji_id"] = attributes.get("emoji-id", "0")
    return [entity]


def _fixed(entities: list[Entity]) -> list[Entity]:
    """Merge `pre` around `code`, allow nothing else inside code, keep at most a hundred."""
    pres = {(e["offset"], e["length"]): e for e in entities if e["type"] == "pre"}
    kept: list[Entity] = []
    for entity in entities:
        outer = pres.get((entity["offset"], entity["length"]))
        if entity["type"] == "code" and outer is not None:
            if "language" in entity:
                outer["language"] = entity["language"]
            continue
        entity = entity if entity["type"] != "code" else {k: v for k, v in entity.items() if k != "language"}
        kept.append(entity)
    codes = [e for e in kept if e["type"] in ("pre", "code")]
    clear = [
        e for e in kept
        if e in codes or not any(_within(e, code) for code in codes)
    ]  # fmt: skip
    return sorted(clear, key=lambda e: (e["offset"], -e["length"]))[:100]


def _within(inner: Entity, outer: Entity) -> bool:
    return (
        outer["offset"] <= inner["offset"]
        and inner["offset"] + inner["length"] <= outer["offset"] + outer["length"]
        and (inner["length"] < outer["length"] or inner["type"] not in ("blockquote", "expandable_blockquote"))
    )


class _Markdown:
    """MarkdownV2: every reserved character is markup or escaped."""

    MARKS = (
        ("||", "spoiler"), ("__", "underline"), ("*", "bold"), ("_", "italic"), ("~", "strikethrough"),
    )  # fmt: skip

    def __init__(self, text: str) -> None:
        self._text, self._place = text, 0
        self._out: list[str] = []
        self._size = 0
        self._opened: list[tuple[str, str, int, int]] = []
        self._entities: list[Entity] = []

    def read(self) -> tuple[str, list[Entity]]:
        while self._place < len(self._text):
            self._step()
        quotes = [opened for opened in self._opened if opened[0] == ">"]
        for opened in quotes:
            self._opened.remove(opened)
            self._entities.append({"type": "blockquote", "offset": opened[2], "length": self._size - opened[2]})
        if self._opened:
            name = self._opened[-1][1].title()
            raise Unparsable(f"Can't find end of {name} entity at byte offset {self._opened[-1][3]}")
        return "".join(self._out), _fixed(self._entities)

    def _say(self, text: str, step: int) -> None:
        self._out.append(text)
        self._size += units(text)
        self._place += step

    def _step(self) -> None:
        text, place = self._text, self._place
        char = text[place]
        if char == "\\" and place + 1 < len(text) and ord(text[place + 1]) <= 126:
            self._say(text[place + 1], 2)
        elif text.startswith("```", place) or char == "`":
            self._code("```" if text.startswith("```", place) else "`")
        elif char == ">" and (place == 0 or text[place - 1] == "\n"):
            if not any(mark == ">" for mark, *_ in self._opened):
                self._opened.append((">", "blockquote", self._size, place))
            self._place += 1
        elif char == "\n" and text[place + 1 : place + 2] != ">" and self._ends_quote():
            self._say(char, 1)
        elif char == "[" or text.startswith("![", place):
            self._opened.append(("[", "text_link", self._size, place))
            self._place += 2 if char == "!" else 1
        elif char == "]" and self._opened and self._opened[-1][0] == "[":
            self._link()
        elif not self._mark() and char in RESERVED:
            raise Unparsable(f"Character '{char}' is reserved and must be escaped with the preceding '\\'")
        elif self._place == place:
            self._say(char, 1)

    def _ends_quote(self) -> bool:
        if self._opened and self._opened[-1][0] == ">":
            begun = self._opened.pop()[2]
            self._entities.append({"type": "blockquote", "offset": begun, "length": self._size - begun})
        return True

    def _mark(self) -> bool:
        for mark, kind in self.MARKS:
            if self._text.startswith(mark, self._place):
                if self._opened and self._opened[-1][0] == mark:
                    begun = self._opened.pop()[2]
                    if self._size > begun:
                        self._entities.append({"type": kind, "offset": begun, "length": self._size - begun})
                else:
                    self._opened.append((mark, kind, self._size, self._place))
                self._place += len(mark)
                return True
        return False

    def _code(self, mark: str) -> None:
        match = re.compile(rf"{mark}((?:\\.|[^`\\]|\\)*?){mark}", re.DOTALL).match(self._text, self._place)
        if match is None:
            kind = "Pre" if len(mark) == 3 else "Code"
            raise Unparsable(f"Can't find end of {kind} entity at byte offset {self._place}")
        inner, language = re.sub(r"\\([\\`])", r"\1", match[1]), ""
        if len(mark) == 3 and (named := re.match(r"(\w*)\n", inner)):
            language, inner = named[1], inner[named.end() :].rstrip("\n")
        begun = self._size
        self._say(inner, len(match[0]))
        entity = {"type": "pre" if len(mark) == 3 else "code", "offset": begun, "length": self._size - begun}
        self._entities.append(entity | ({"language": language} if language else {}))

    def _link(self) -> None:
        match = re.compile(r"\]\(((?:\\.|[^)\\])*)\)").match(self._text, self._place)
        if match is None:
            raise Unparsable(f"Can't find end of a URL at byte offset {self._place}")
        begun = self._opened.pop()[2]
        self._place = match.end()
        url = re.sub(r"\\(.)", r"\1", match[1])
        if self._size > begun and _LINK.match(url):
            length = self._size - begun
            self._entities.append({"type": "text_link", "offset": begun, "length": length, "url": url})


def _legacy(text: str) -> tuple[str, list[Entity]]:
    """Legacy Markdown: no nesting, and unclosed markup is an error."""
    out, entities, size, place = [], [], 0, 0
    pattern = re.compile(
        r"\\([_*`\[])|```(?:\w*\n)?(.*?)```|`([^`]*)`|\*([^*]*)\*|_([^_]*)_|\[([^]]*)\]\(([^)]*)\)", re.S
    )
    kinds = {2: "pre", 3: "code", 4: "bold", 5: "italic", 6: "text_link"}
    while place < len(text):
        match = pattern.match(text, place)
        if match is None and text[place] in "_*`":
            raise Unparsable(f"Can't find end of the entity starting at byte offset {len(text[:place].encode())}")
        shown = text[place]
        if match is not None:
            group = next(n for n in range(1, 7) if match[n] is not None)
            shown = match[group]
            if group in kinds and shown:
                more = {"url": match[7]} if group == 6 else {}
                entities.append({"type": kinds[group], "offset": size, "length": units(shown), **more})
        place = match.end() if match else place + 1
        out.append(shown)
        size += units(shown)
    return "".join(out), entities
