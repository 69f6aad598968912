"""Markdown as the platform shows it, as far as the conversations use it."""

import re


def read(text: str) -> str:
    text = re.sub(r"```\n?(.*?)\n?```", r"\1\n", text, flags=re.DOTALL)
    text = re.sub(r"\n{3,}", "\n\n", text)
    text = re.sub(r"\*\*(.+?)\*\*|`(.+?)`", lambda match: match[1] or match[2], text)
    return re.sub(r"\\(.)", r"\1", text)
