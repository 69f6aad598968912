"""Docs are true: links, commands, file names, error messages and metrics on every page exist, and every page is found."""

import ast
import re
import subprocess
import sys
from functools import cache
from pathlib import Path

import pytest

from alipes.kernel import errors
from alipes.runtime import watchdog

ROOT = Path(__file__).parents[2]
SRC = ROOT / "src" / "alipes"
DOCS = ROOT / "docs"
INDEX = DOCS / "index.md"
PAGES = sorted([*DOCS.rglob("*.md"), *ROOT.glob("*.md")])
MESSENGERS = ("telegram", "discord", "slack", "matrix", "email", "irc")
GROUPS = ["Tutorials", "How-to guides", "Reference", "Explanation"]
BLOCK = re.compile(r"^ *```(?:\w*)\n(.*?)^ *```", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"\]\((?!http|mailto)([^)\s]+)\)")
COMMAND = re.compile(r"(?:^|\| |&& |\$ )alipes((?: [^\s#|>&]+)*)", re.MULTILINE)
PYTHON_FILE = re.compile(r"`((?:[\w.-]+/)*[\w*-]+\.py)(?::(\w+))?`")
OTHERS = {"setup.py"}
"""Files of other projects."""
DECISIONS = DOCS / "adr" / "index.md"
CODES = re.compile(r"(<!-- begin codes -->\n).*?(<!-- end codes -->)", re.DOTALL)

each_page = pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))


@cache
def help_of(*words):
    """The output of `alipes WORDS --help`; empty if there is no such command."""
    done = subprocess.run(
        [sys.executable, "-m", "alipes", *words, "--help"], capture_output=True, text=True, check=False, cwd=ROOT
    )
    return done.stdout if done.returncode == 0 else ""


def command_lines():
    """Each use of a command on a page, once."""
    found = {}
    for page in PAGES:
        for block in BLOCK.findall(page.read_text()):
            for given in COMMAND.findall(block):
                words = given.split()
                if words and re.fullmatch(r"[a-z]+", words[0]):
                    found.setdefault(" ".join(words), page.name)
    return sorted(found)


def links(page):
    """The files that a page links to."""
    targets = LINK.findall(BLOCK.sub("", page.read_text()))
    return {(page.parent / target.partition("#")[0]).resolve() for target in targets if target[0] != "#"}


def anchors(page):
    titles = re.findall(r"^#+ (.*)$", BLOCK.sub("", page.read_text()), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles}


@each_page
def test_every_link_of_a_page_has_a_target(page):
    for target in LINK.findall(BLOCK.sub("", page.read_text())):
        path, _, anchor = target.partition("#")
        file = (page.parent / path).resolve() if path else page
        assert file.exists(), target
        if anchor and file.suffix == ".md":
            assert anchor in anchors(file), target


def test_every_page_can_be_reached_from_the_index():
    reached, todo = set(), [INDEX]
    while todo:
        page = todo.pop()
        if page not in reached:
            reached.add(page)
            todo += [each for each in links(page) if each.suffix == ".md"]
    assert {page for page in PAGES if page not in reached} == {ROOT / "README.md"}


def test_the_index_links_every_page_of_docs_in_four_groups():
    assert re.findall(r"^## (.*)$", INDEX.read_text(), re.MULTILINE) == GROUPS
    pages = {page.resolve() for page in DOCS.rglob("*.md") if page.parent.name != "adr"} - {INDEX}
    assert pages - links(INDEX) == set()


def test_decisions_are_numbered_without_gaps_and_only_once():
    numbers = sorted(int(path.name[:4]) for path in (DOCS / "adr").glob("0*.md"))
    assert numbers == list(range(1, len(numbers) + 1))


def decisions_table():
    rows = ["| no. | decision |", "|---|---|"]
    for path in sorted((DOCS / "adr").glob("0*.md")):
        number, _, title = path.read_text().partition("\n")[0].removeprefix("# ").partition(". ")
        rows.append(f"| {number} | [{title}]({path.name}) |")
    return "\n".join(rows) + "\n"


def test_the_list_of_decisions_is_complete():
    assert decisions_table() in DECISIONS.read_text(), "run: python tools/docs.py"


def test_all_messenger_pages_have_the_same_headings():
    headings = {name: re.findall(r"^## (.*)$", (DOCS / f"{name}.md").read_text(), re.MULTILINE) for name in MESSENGERS}
    assert headings["slack"].pop() == "The manifest"
    assert all(each == headings["telegram"] for each in headings.values()), headings


@each_page
def test_every_python_file_that_a_page_names_exists(page):
    written = re.findall(r"^```python\n# (\S+)$", page.read_text(), re.MULTILINE)
    for name, member in PYTHON_FILE.findall(BLOCK.sub("", page.read_text())):
        if name in OTHERS or any(f"/{file}".endswith(f"/{name}") for file in written):
            continue
        paths = [path for base in (ROOT, SRC) for path in base.glob(name)]
        assert paths, name
        if member:
            assert member in names_in(paths[0]), f"{name}:{member}"


def test_every_page_that_the_source_names_exists():
    files = [*SRC.rglob("*.py"), *(ROOT / name for name in ("Makefile", "Containerfile", "pyproject.toml"))]
    named = {name for file in files for name in re.findall(r"\bdocs/[\w/.-]*\w", file.read_text())}
    assert {name for name in named if not list(ROOT.glob(f"{name}*"))} == set()


def names_in(path):
    """All functions and classes of a module, and its constants."""
    tree = ast.parse(path.read_text())
    defined = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
    names = {node.name for node in ast.walk(tree) if isinstance(node, defined)}
    return names | {
        node.id for node in ast.walk(tree) if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)
    }


def test_every_type_in_the_glossary_exists():
    terms = re.findall(r"^\| \*\*([A-Z]\w+)\*\* \|", (DOCS / "glossary.md").read_text(), re.MULTILINE)
    defined = set().union(*(names_in(path) for path in SRC.rglob("*.py")))
    assert len(terms) > 8 and [term for term in terms if term not in defined] == []


@pytest.mark.parametrize("line", command_lines())
def test_every_command_on_a_page_exists(line):
    name, *words = line.split()
    text = help_of(name)
    assert text, f"alipes {name}"
    for option in (word.partition("=")[0] for word in words if re.fullmatch(r"--[a-z][a-z-]*(?:=.*)?", word)):
        assert option in text, f"{option} of alipes {name}"


def error_classes():
    found = [each for each in vars(errors).values() if isinstance(each, type) and issubclass(each, Exception)]
    return [each for each in found if each.__module__ == errors.__name__]


def codes_table():
    """Every error class with its code and the first line of its entry in the module's docstring."""
    acts = dict(re.findall(r"^[│├└─ ]*(\w+) {2,}(.*)$", errors.__doc__, re.MULTILINE))
    rows = ["| code | error | who acts next |", "|---|---|---|"]
    for each in error_classes():
        if each is not errors.AlipesError:
            rows.append(f"| `{each.code}` | `{each.__name__}` | {acts.get(each.__name__, '')} |")
    return "\n".join(rows) + "\n"


def test_every_error_class_has_a_code_of_its_own():
    codes = [each.code for each in error_classes()]
    assert len(codes) == len(set(codes))
    assert all(re.fullmatch(r"[a-z-]+(\.[a-z-]+)*", code) for code in codes)
    for each in error_classes():
        (parent,) = each.__bases__
        if parent not in (Exception, errors.AlipesError):
            assert each.code.startswith(f"{parent.code}."), each


def test_the_table_of_error_codes_is_that_of_the_code():
    page = (DOCS / "errors.md").read_text()
    table = CODES.search(page)
    assert table and table[0] == f"{table[1]}{codes_table()}{table[2]}", "run: python tools/docs.py"


def test_every_explained_message_is_in_the_source_and_has_a_code():
    explained = re.findall(
        r"^\| `([^`]+)` \| `([a-z.-]+)` \| .+ \| .+ \|$", (DOCS / "errors.md").read_text(), re.MULTILINE
    )
    assert len(explained) > 12 and len({code for _, code in explained}) == len(explained)
    assert [message for message, _ in explained if message not in source_text()] == []
    classes = {each.code for each in error_classes()}
    assert [code for _, code in explained if code.rpartition(".")[0] not in classes] == []


@cache
def source_text():
    """All of the source, with adjacent string literals joined."""
    source = "\n".join(path.read_text() for path in SRC.rglob("*.py"))
    return re.sub(r'"\s*\n?\s*f?"', "", source)


SHOWN = re.compile(
    r"\.\.\.|anthropic/claude-sonnet-5-5|claude-sonnet-5-5|platform\.claude\.com\S*|ANTHROPIC_API_KEY|"
    r"127\.0\.0\.1:9100/v1|\b(?:anthropic|openai|ollama|mine|small?)\b|\*\*\*|[\d.]+|~/\.alipes/\S+|yes$|:? ?\$ alipes setup"
)
"""Parts of quoted output that are values of one run."""


def test_the_output_quoted_on_the_setup_page_is_in_the_source():
    page = (DOCS / "setup.md").read_text()
    (session,) = re.findall(r"^```text\n(.*?)^```", page, re.MULTILINE | re.DOTALL)
    (rows,) = re.findall(r"^\| problem \|.*?\n\n", page, re.MULTILINE | re.DOTALL)
    quoted = [line for line in session.splitlines() if " = " not in line] + re.findall(r"`([^`]+)`", rows)
    parts = [part.strip(" :;,()'=`") for line in quoted for part in SHOWN.split(line)]
    assert [part for part in parts if len(part) > 3 and part not in source_text()] == []


def test_every_table_that_a_decision_names_is_in_the_database():
    schema = (SRC / "store" / "sqlite" / "migrations" / "migrations.py").read_text()
    page = next((DOCS / "adr").glob("0006-*.md")).read_text()
    tables = re.findall(r"^\| `(\w+)` \|", page, re.MULTILINE)
    assert tables and [name for name in tables if not re.search(rf"TABLE {name}\b", schema)] == []


def test_the_limits_for_plugins_are_those_of_the_watchdog():
    page = (DOCS / "plugin-interruption.md").read_text()
    assert f"| a hook | {watchdog.MAX_BLOCK_S * watchdog.INTERRUPT_SHARE:.3f} s" in page
    assert f"more than {watchdog.MAX_BLOCK_S:g} s" in page
    assert f"| {watchdog.DELICATE_CODE_S:g} s: interrupting" in page


def test_every_metric_of_the_operations_page_is_measured():
    source = (SRC / "web" / "metrics.py").read_text()
    page = (DOCS / "operations.md").read_text()
    assert {name for name in re.findall(r"`(alipes_\w+)`", page) if f'"{name}"' not in source} == set()


def renew():
    table = re.compile(r"^\| no\. .*?\n\n", re.MULTILINE | re.DOTALL)
    DECISIONS.write_text(table.sub(lambda _: decisions_table() + "\n", DECISIONS.read_text()))
    page = DOCS / "errors.md"
    page.write_text(CODES.sub(lambda found: found[1] + codes_table() + found[2], page.read_text()))


if __name__ == "__main__":
    renew()
