"""docs/configuration.md says what the settings are. `python -m tests.architecture.test_docs_config` renews its tables."""

import re
import tomllib
from pathlib import Path

import pytest

from alipes.config.display import written
from alipes.config.known_providers import KNOWN
from alipes.config.paths import Paths
from alipes.config.schema import KEYS, RESERVED
from alipes.config.settings import load
from alipes.config.value_types import Key

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "configuration.md"
MARKED = re.compile(r"(<!-- begin (\w+) -->\n).*?(<!-- end \2 -->)", re.DOTALL)


def settings_table() -> str:
    rows = ["| key | kind | default | variable | meaning |", "|---|---|---|---|---|"]
    rows += [_row(key) for key in KEYS]
    return "\n".join(rows) + "\n"


def _row(key: Key) -> str:
    default = "" if key.default is None else f"`{written(key.default)}`"
    variable = f"`{key.variable}`" if key.variable else ""
    return f"| `{key.path}` | {key.kind.says.replace('|', ' ')} | {default} | {variable} | {key.doc} |"


def providers_table() -> str:
    rows = ["| provider | api | base_url | key | default model |", "|---|---|---|---|---|"]
    for known in KNOWN.values():
        cells = (known.name, known.api, known.base_url, known.key_env, known.model)
        rows.append("| " + " | ".join(f"`{cell}`" if cell else "" for cell in cells) + " |")
    return "\n".join(rows) + "\n"


TABLES = {"settings": settings_table, "providers": providers_table}


def renewed(page: str) -> str:
    return MARKED.sub(lambda found: found[1] + TABLES[found[2]]() + found[3], page)


def test_the_tables_of_the_page_are_those_of_the_code():
    page = PAGE.read_text()
    assert {found[2] for found in MARKED.finditer(page)} == set(TABLES)
    assert page == renewed(page), "run: python -m tests.architecture.test_docs_config"


def test_every_reserved_table_is_named_on_the_page():
    page = PAGE.read_text()
    assert [name for name in RESERVED if f"`[{name}" not in page] == []


@pytest.mark.parametrize("text", re.findall(r"```toml\n(.*?)```", PAGE.read_text(), re.DOTALL))
def test_the_examples_of_the_page_are_valid(tmp_path, text):
    Paths(tmp_path).config.write_text(text)
    names = re.findall(r"\b[A-Z]+_[A-Z_]*(?:KEY|TOKEN)\b", text)
    assert tomllib.loads(text)
    load(tmp_path, dict.fromkeys(names, "a-secret"))


if __name__ == "__main__":
    PAGE.write_text(renewed(PAGE.read_text()))
