"""Forms of MCP servers (elicitation): how a field is shown to a person, and the value of an answer."""

import re
from collections.abc import Mapping
from datetime import date, datetime
from typing import TypeAlias

from alipes.kernel.approvals import reveal
from alipes.kernel.messages import Json

Schema: TypeAlias = Mapping[str, Json]
Value: TypeAlias = str | int | float | bool | list[str]
YES, NO, DECLINE, SKIP = "Yes", "No", "Decline", "Skip"
MAX_CHOICES = 20
"""Choices that are shown as such; more are listed in the text."""
_TRUE, _FALSE = ("yes", "y", "true", "on", "1"), ("no", "n", "false", "off", "0")
_EMAIL, _URI = re.compile(r"[^@\s]+@[^@\s]+\.[^@\s]+"), re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:\S+")


class FormField:
    """One field: its name, its JSON schema, and whether it must be filled in."""

    def __init__(self, name: str, schema: Schema, *, required: bool) -> None:
        self.name, self.required, self._schema = name, required, schema
        items = schema.get("items")
        self._several = schema.get("type") == "array"
        self._choices = _read_choices(items if self._several and isinstance(items, dict) else schema)
        self.default = schema.get("default")

    @property
    def question(self) -> str:
        """Its title, what it is for, its choices if they cannot be buttons, its default."""
        title, description = self._schema.get("title") or self.name, self._schema.get("description") or ""
        lines = [f"{title}: {description}" if description else f"{title}"]
        if self._choices and not self.choices:
            lines += [f"{number}. {title}" for number, title in enumerate(self._choices.values(), 1)]
        if self._several:
            lines.append("Several are separated by commas.")
        if self.default is not None:
            lines.append(f"Default: {self._show_default()} (answer “default” to use it)")
        elif not self.required:
            lines.append("It may be left out: answer “skip”.")
        return reveal("\n".join(lines))

    @property
    def choices(self) -> tuple[str, ...]:
        """What can be chosen instead of typed; empty if the answer must be typed."""
        if self._schema.get("type") == "boolean":
            shown: tuple[str, ...] = (YES, NO)
        elif self._choices and not self._several and len(self._choices) <= MAX_CHOICES:
            shown = (*map(reveal, self._choices.values()), DECLINE)
        else:
            return ()
        return shown if self.required else (*shown, SKIP)

    def is_left_out(self, answer: str) -> bool:
        return not self.required and answer.strip().lower() in ("", "skip")

    def parse(self, answer: str) -> Value:
        """The value of an answer. Raises ValueError with what is wrong, as the end of a sentence."""
        text = answer.strip()
        if self.default is not None and text.lower() in ("", "default"):
            return self.default  # type: ignore[return-value]  # checked by nobody but the server
        if self._several:
            return self._parse_several(text)
        if self._choices:
            return self._parse_choice(text)
        match self._schema.get("type"):
            case "boolean":
                return _parse_boolean(text)
            case "integer" | "number" as kind:
                return self._parse_number(text, whole=kind == "integer")
        return self._parse_text(text)

    def _show_default(self) -> str:
        if isinstance(self.default, bool):
            return YES if self.default else NO
        values = self.default if isinstance(self.default, list) else [self.default]
        return ", ".join(self._choices.get(str(each), str(each)) for each in values)

    def _parse_choice(self, text: str) -> str:
        """By its value, its title, or its number."""
        for value, title in self._choices.items():
            if text in (value, title, reveal(title)):
                return value
        if text.isdigit() and 1 <= int(text) <= len(self._choices):
            return list(self._choices)[int(text) - 1]
        raise ValueError(f"it must be one of {', '.join(self._choices.values())}")

    def _parse_several(self, text: str) -> list[str]:
        parts = [part.strip() for part in text.split(",") if part.strip()]
        values = [self._parse_choice(part) if self._choices else part for part in parts]
        self._check_size(len(values), "minItems", "maxItems", "values")
        return values

    def _parse_number(self, text: str, *, whole: bool) -> int | float:
        try:
            number = int(text) if whole else float(text)
        except ValueError:
            raise ValueError("it must be a whole number" if whole else "it must be a number") from None
        self._check_size(number, "minimum", "maximum", "")
        return number

    def _parse_text(self, text: str) -> str:
        self._check_size(len(text), "minLength", "maxLength", "characters")
        check = _FORMATS.get(str(self._schema.get("format")))
        if check is not None:
            check(text)
        return text

    def _check_size(self, size: float, least: str, most: str, unit: str) -> None:
        low, high = self._schema.get(least), self._schema.get(most)
        if isinstance(low, int | float) and size < low:
            raise ValueError(f"it must be at least {low:g} {unit}".strip())
        if isinstance(high, int | float) and size > high:
            raise ValueError(f"it must be at most {high:g} {unit}".strip())


def _read_choices(schema: Schema) -> dict[str, str]:
    """Titles by value, from `enum` with `enumNames`, or from `oneOf` and `anyOf` with `const` and `title`."""
    values = schema.get("enum")
    if isinstance(values, list):
        titles = schema.get("enumNames")
        named = titles if isinstance(titles, list) and len(titles) == len(values) else values
        return {str(value): str(title) for value, title in zip(values, named, strict=True)}
    listed = schema.get("oneOf") or schema.get("anyOf")
    options = [each for each in listed if isinstance(each, dict)] if isinstance(listed, list) else []
    return {str(each["const"]): str(each.get("title") or each["const"]) for each in options if "const" in each}


def _parse_boolean(text: str) -> bool:
    if text.lower() in _TRUE:
        return True
    if text.lower() in _FALSE:
        return False
    raise ValueError("it must be yes or no")


def _check_email(text: str) -> None:
    if not _EMAIL.fullmatch(text):
        raise ValueError("it must be an email address")


def _check_uri(text: str) -> None:
    if not _URI.fullmatch(text):
        raise ValueError("it must be an address such as https://example.com")


def _check_date(text: str) -> None:
    try:
        date.fromisoformat(text)
    except ValueError:
        raise ValueError("it must be a date such as 2026-01-31") from None


def _check_moment(text: str) -> None:
    try:
        datetime.fromisoformat(text)
    except ValueError:
        raise ValueError("it must be a date and time such as 2026-01-31T18:00:00Z") from None


_FORMATS = {"email": _check_email, "uri": _check_uri, "date": _check_date, "date-time": _check_moment}
