"""The tables of settings in docs are those of the code. `python -m tests.architecture.test_docs_config` renews them."""

import re
import tomllib
from pathlib import Path
from textwrap import dedent

import pytest

from alipes.config.display import to_toml
from alipes.config.known_providers import KNOWN
from alipes.config.loader import load_settings
from alipes.config.paths import Paths
from alipes.config.schema import KEYS, RESERVED, Key
from alipes.kernel.errors import ConfigError

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "configuration.md"
MESSENGERS = ("telegram", "discord", "slack", "matrix", "email", "irc")
MARKED = re.compile(r"(<!-- begin (\w+) -->\n).*?(<!-- end \2 -->)", re.DOTALL)


def settings_table(table: str = "") -> str:
    """All settings, or those of one table."""
    rows = ["| key | kind | default | variable | meaning |", "|---|---|---|---|---|"]
    rows += [_row(key) for key in KEYS if not table or key.path.startswith(f"{table}.")]
    return "\n".join(rows) + "\n"


def _row(key: Key) -> str:
    default = "" if key.default is None else f"`{to_toml(key.default)}`"
    variable = f"`{key.variable}`" if key.variable else ""
    return f"| `{key.path}` | {key.type.description.replace('|', ' ')} | {default} | {variable} | {key.description} |"


def providers_table() -> str:
    rows = ["| provider | api | base_url | key | default model |", "|---|---|---|---|---|"]
    for known in (each for each in KNOWN.values() if each.api != "python"):  # those of the test suites
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


def messenger_page(name: str) -> Path:
    return ROOT / "docs" / f"{name}.md"


def with_settings(page: str, name: str) -> str:
    return MARKED.sub(lambda found: found[1] + settings_table(name) + found[3], page)


@pytest.mark.parametrize("name", MESSENGERS)
def test_the_settings_of_a_messenger_are_on_its_page(name):
    page = messenger_page(name).read_text()
    assert MARKED.search(page), "it has no place for its settings"
    assert page == with_settings(page, name), "run: python -m tests.architecture.test_docs_config"


def test_every_reserved_table_is_named_on_the_page():
    page = PAGE.read_text()
    assert [name for name in RESERVED if f"`[{name}" not in page] == []


def examples() -> list[str]:
    """Every example of a configuration on a page; those of the publishing page are manifests."""
    pages = (page for page in sorted((ROOT / "docs").rglob("*.md")) if page.name != "install-plugins.md")
    blocks = (re.findall(r"^ *```toml\n(.*?)^ *```", page.read_text(), re.M | re.S) for page in pages)
    return [dedent(block) for found in blocks for block in found]


@pytest.mark.parametrize("text", examples())
def test_every_example_of_a_configuration_is_valid(tmp_path, text):
    (tmp_path / "a.gguf").touch()
    text = re.sub(r'"~/[^"]*\.gguf"', f'"{tmp_path / "a.gguf"}"', text)
    Paths(tmp_path).config.write_text(text)
    names = re.findall(r"\b[A-Z]+_[A-Z_]*(?:KEY|TOKEN)\b", text)
    assert tomllib.loads(text)
    load_settings(tmp_path, dict.fromkeys(names, "a-secret"))


PROBLEMS = """\
model = "mine/some-model"

# lines of comments
# before the mistakes

[serve]
port = 99999
[providers.mine]
base_url = "localhost:9100"
"""
PROXY = "http://ada:a-secret@127.0.0.1:6153export"


def reported_problems(home: Path) -> str:
    Paths(home).config.write_text(PROBLEMS)
    with pytest.raises(ConfigError) as raised:
        load_settings(home, {"HTTP_PROXY": PROXY})
    return str(raised.value).replace(str(home), "~/.alipes")


def test_the_problems_shown_are_reported_in_the_same_words(tmp_path):
    assert f"```\n{reported_problems(tmp_path)}\n```" in PAGE.read_text()


def renew() -> None:
    PAGE.write_text(renewed(PAGE.read_text()))
    for name in MESSENGERS:
        page = messenger_page(name)
        page.write_text(with_settings(page.read_text(), name))


if __name__ == "__main__":
    renew()
