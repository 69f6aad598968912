"""Every code block of the docs is run by some test, word for word, or has a reason why it is only read."""

import asyncio
import json
import re
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from textwrap import dedent

import pytest
from msgspec import Struct

from tests.architecture import test_contributor_pages, test_docs_cli, test_docs_config, test_docs_pages, test_docs_slack
from tests.contract import test_docs_plugins
from tests.e2e import test_api_docs, test_openai_api
from tests.e2e.program import ROOT, Finished, Home, wait_finished
from tests.e2e.service import open_serve, write_settings
from tests.world.commands import all_commands
from tests.world.environment import environment, program_path, require
from tests.world.model_server import ModelServer, Say
from tests.world.other_homes import copy_home

DOCS = ROOT / "docs"
PAGES = sorted([*DOCS.rglob("*.md"), *ROOT.glob("*.md")])
PROGRAMS = ("curl", "git", "make")
PATH = program_path(*PROGRAMS)


class Block(Struct, frozen=True):
    page: str
    line: int
    language: str
    text: str

    @property
    def name(self) -> str:
        return f"{self.page}:{self.line}"


def list_blocks() -> Iterator[Block]:
    for page in PAGES:
        text = page.read_text()
        for match in re.finditer(r"^ *```(\w*)\n(.*?)^ *```$", text, re.M | re.S):
            name = str(page.relative_to(DOCS if DOCS in page.parents else ROOT))
            yield Block(name, text[: match.start()].count("\n") + 1, match[1], match[2])


BLOCKS = tuple(list_blocks())
ELSEWHERE = (
    (r"cli\.md:\d+ text", "architecture/test_docs_cli.py: the output of --help"),
    (r".* toml", "architecture/test_docs_config.py, contract/test_docs_plugins.py: read as settings, or as a manifest"),
    (r"(plugin-\w+|write-a-plugin|test-a-plugin)\.md:\d+ python", "contract/test_docs_plugins.py: run"),
    (r"contributing/.* \w+", "architecture/test_contributor_pages.py: applied and run"),
    (r"(api|admin-api)\.md:\d+ sh", "e2e/test_api_docs.py: run"),
    (r"openai-api\.md:\d+ (python|yaml)", "e2e/test_openai_api.py: run"),
    (r"configuration\.md:48 ", "architecture/test_docs_config.py: these problems are reported"),
    (r"setup\.md:\d+ text", "architecture/test_docs_pages.py: the words are in the source"),
    (r"slack\.md:\d+ json", "architecture/test_docs_slack.py: the manifest"),
)
"""Blocks that other tests run, by page, line and language."""
SHOWN = (
    (r"plugin-interruption\.md:\d+ ", "a diagram"),
    (r"(processes|network|terminal)\.md:\d+ text", "what a terminal shows: the words are in the source"),
    (r"(api|page)\.md:\d+ ", "the settings of a web server of others: brackets are counted"),
    (r"editors\.md:\d+ (lua|elisp)", "the settings of an editor of others: brackets are counted"),
    (r"(skills|templates)\.md:\d+ markdown", "a file of a skill or a template: its head is read"),
    (
        r"(editors|mcp-server|mcp-command)\.md:\d+ json",
        "the settings of a client: read as JSON, with a command or an address of ours",
    ),
)
"""Blocks that no program of ours runs, and what is checked."""


def list_run_elsewhere(home: Path) -> set[str]:
    """The texts of blocks as the tests of `ELSEWHERE` find them on the pages."""
    named = [
        (name, text) for page in test_contributor_pages.PAGES for _, name, text in test_contributor_pages.blocks(page)
    ]
    manifest = test_docs_slack.BLOCK.search(test_docs_slack.PAGE.read_text())
    assert manifest
    return {
        *test_docs_cli.PAGES.values(),
        *test_docs_config.examples(),
        *test_docs_plugins.TABLES,
        *(f"# {name}\n{text}" for name, text in (*named, *test_docs_plugins.BLOCKS)),
        *(lines for name in ("api.md", "admin-api.md") for lines in test_api_docs.list_lines(name)),
        *(test_openai_api.shown("python", number) for number in range(2)),
        test_openai_api.shown("yaml"),
        f"{test_docs_config.reported_problems(home)}\n",
        *re.findall(r"^```text\n(.*?)^```", (DOCS / "setup.md").read_text(), re.M | re.S),
        f"{manifest[1]}\n",
    }


def kind_of(block: Block) -> str:
    """`elsewhere`, `shown`, `shell` or `unknown`."""
    name = f"{block.name} {block.language}"
    if any(re.fullmatch(pattern, name) for pattern, _ in ELSEWHERE):
        return "elsewhere"
    if block.language in ("", "sh") and all(is_line_of_shell(line) for line in lines_of(block)):
        return "shell"
    return "shown" if any(re.fullmatch(pattern, name) for pattern, _ in SHOWN) else "unknown"


def lines_of(block: Block) -> list[str]:
    """Its lines without what is said about them; those that end with a backslash are joined."""
    text = re.sub(r"\\\n *", "", block.text)
    found = [re.split(r"  +(?=[^ ])|  +#", line.strip())[0].strip() for line in text.splitlines()]
    return [line for line in found if line and not line.startswith("#")]


def is_line_of_shell(line: str) -> bool:
    word = line.split()[0]
    known = (
        "alipes",
        "make",
        "git",
        "curl",
        "podman",
        "npm",
        "uv",
        "createuser",
        "systemctl",
        "echo",
        "cd",
        "pytest",
        "python",
    )
    word = "python" if word.startswith("ALIPES_") else word
    return word in known or re.fullmatch(r"/[a-z-]+", word) is not None or line in SAID


SAID = {"Reading web pages needs 11 more packages (21 MB). Install them now? [Y/n]": "tests/unit of console/extras.py"}
"""Lines between commands that are output."""
NEVER_RUN = (
    (r"npm install|uv tool install|alipes install .", "installs packages from the network"),
    (r"make install$", "writes into the home of the user; tests/e2e/test_install_command.py"),
    (r"git clone ADDRESS", "the address is that of the reader"),
    (r"podman ", "needs a container engine that builds"),
    (r"systemctl ", "needs systemd"),
    (r"createuser |alipes store move", "needs a PostgreSQL of the reader; tests/contract opens one"),
    (r"curl -X POST .*matrix", "needs a Matrix server of the reader"),
    (
        r"alipes( serve| page --open| -P work)?$|alipes serve -P",
        "runs until it is stopped; test_serve*.py, test_terminal*.py",
    ),
    (r"alipes --model agent/claude|alipes agents (login|test) claude", "needs a program of a vendor"),
    (r"alipes pair CODE|alipes send telegram", "needs a chat; test_serve_telegram.py"),
    (r"alipes serve outbox (again|drop) 17", "needs a message that failed; test_serve_telegram.py"),
    (r"alipes serve install --write", "writes a unit for systemd; tests/unit of serve install"),
    (r"alipes( -P work)? setup$", "asks a person; test_setup.py"),
    (r"alipes setup --provider (anthropic|mine) |echo \"\$KEY\"", "sends a request to the provider; test_setup.py"),
    (r"alipes (ask -m|model) xai/grok|alipes model --live", "needs a key, or the network"),
    (r"alipes mcp (add notes --url|login notes)", "needs a server of the reader; tests/unit/features/mcp"),
    (r"alipes skills rollback", "needs a third version; tests/unit/features/skills"),
    (r"alipes skills install (https:|owner/)", "fetches from the network; tests/unit/features/skills"),
    (r"alipes update( --check| --back)?$", "installs another version; test_update.py"),
    (r"cd ~/\.hermes|pytest -p alipes", "tests/compat runs the suite"),
    (r"python -m tests\.simulation|ALIPES_SIMULATION", "takes minutes; tests/simulation"),
    (r"alipes restore all\.tgz --to /srv", "writes outside of the home; test_backup.py"),
)
"""Lines that are only read, by a pattern of their start, and why."""


def reason(line: str) -> str:
    """Why a line is not run; empty if it is."""
    return next((why for pattern, why in NEVER_RUN if re.match(pattern, line)), SAID.get(line, ""))


FILLED = {"KEY VALUE": "serve.port 8743", "KEY": "serve.port", "CONVERSATION": "trip", "NAME": "weather"}
FILLED |= {"SOURCE": "./plugin/weather", "http://127.0.0.1:9100/v1": "MODEL"}
"""What is put for words that the reader fills in."""
INPUT = {
    "alipes config set ANTHROPIC_API_KEY -": "sk-ant-a-key-that-is-long-enough\n",
    "alipes config set TELEGRAM_BOT_TOKEN -": "123456:a-token-that-is-long-enough-for-it\n",
    "alipes config set ALIPES_STORE_PASSWORD -": "a-password\n",
}
"""What a person pastes."""
CONFIRMED = (
    (r"alipes (plugins (install|accept|update|remove)|mcp import [^ ]|skills (install|update))", " --yes"),
    (r"alipes import (hermes$|undo)", " --yes"),
    (r"alipes profile remove work", " --confirm work"),
    (r"alipes setup --base-url https://bedrock", " --no-check"),
)
"""Lines that a person confirms at the terminal, and the option for it."""
BEFORE = {"alipes skills history expense-report": ("alipes skills new expense-report",)}
"""What a reader has done before the first line of a block."""
FAILS = {"alipes doctor": (0, 1)}
"""Lines that may end otherwise than with 0."""


def test_every_block_is_of_a_kind_that_is_checked():
    assert [block.name for block in BLOCKS if kind_of(block) == "unknown"] == [], "say in this file how it is checked"
    assert len([block for block in BLOCKS if kind_of(block) == "elsewhere"]) > 90
    assert len([block for block in BLOCKS if kind_of(block) == "shell"]) > 40


def test_every_block_that_another_test_runs_is_among_those_which_that_test_finds(tmp_path):
    run = list_run_elsewhere(tmp_path)
    assert [block.name for block in BLOCKS if kind_of(block) == "elsewhere" and dedent(block.text) not in run] == []


def test_every_fence_on_a_page_begins_or_ends_a_block():
    """So no block is left out because it is written in another way."""
    for page in PAGES:
        fences = len(re.findall(r"^[ >]*(?:```|~~~)", page.read_text(), re.M))
        assert fences == 2 * len([block for block in BLOCKS if page == find_page(block)]), page


def find_page(block: Block) -> Path:
    return next(place for place in (DOCS / block.page, ROOT / block.page) if place.exists())


def test_every_reason_is_used():
    names = [f"{block.name} {block.language}" for block in BLOCKS]
    lines = [line for block in BLOCKS if kind_of(block) == "shell" for line in lines_of(block)]
    for pattern, _ in (*ELSEWHERE, *SHOWN):
        assert any(re.fullmatch(pattern, name) for name in names), pattern
    for pattern, _ in NEVER_RUN:
        assert any(re.match(pattern, line) for line in lines), pattern
    for line in (*SAID, *INPUT, *FAILS):
        assert line in lines, line


@pytest.mark.parametrize("block", [each for each in BLOCKS if kind_of(each) == "shown"], ids=lambda block: block.name)
def test_what_is_only_shown_is_well_formed(block):
    match block.language:
        case "json":
            servers = [*find_servers(json.loads(block.text))]
            assert servers
            for server in servers:
                called = (Path(server.get("command", "")).name, *server.get("args", ()))
                assert called in CALLED or (called == ("",) and server["url"] == "http://127.0.0.1:8742/mcp"), server
        case "markdown":
            assert re.match(r"---\n(?:(?:name|description|model|tools|argument-hint): .*\n)+---\n", block.text), (
                block.text
            )
        case "text":
            said = test_docs_pages.source_text()
            parts = [part.strip() for part in re.split(VALUES, block.text)]
            assert [part for part in parts if len(part) > 2 and part not in said] == []
        case _:
            text = re.sub(r"#.*", "", block.text)
            assert all(text.count(opening) == text.count(closing) for opening, closing in ("{}", "[]", "()"))


CALLED = (("alipes", "acp"), ("alipes", "mcp", "serve"), ("uvx", "mcp-server-time"))
"""The programs that settings of clients start, with their arguments."""
VALUES = (
    r"\n|[\d.,]+ ?%?|[\"▰▱·>*$()\[\]?:]|npm run dev|pip install ruff|pypi\.org|process write|anthropic/claude\S*|"
    r"\bp1?\b|\besc\b|~/code|\bmain\b|\bfailed\b|passed|200k|\bof\b"
)
"""Parts of what a terminal shows that are values of one run."""


def find_servers(value: object) -> Iterator[dict]:
    if isinstance(value, dict):
        if "command" in value or "url" in value:
            yield value
        for part in value.values():
            yield from find_servers(part)


PAGES_WITH_SHELL = sorted({block.page for block in BLOCKS if kind_of(block) == "shell"})


@pytest.mark.deadline(180)
@pytest.mark.parametrize("page", PAGES_WITH_SHELL)
async def test_every_shell_line_of_a_page_works(tmp_path, page):
    """Those of a block in their order, in a home and a folder that have what the pages speak of."""
    for program in PROGRAMS:
        require(program)
    for block in BLOCKS:
        if block.page != page or kind_of(block) != "shell":
            continue
        for line in (lines := lines_of(block)):
            if line.startswith("/"):
                check_slash(line)
        lines = [line for line in lines if not line.startswith("/") and not reason(line)]
        place = tmp_path / str(block.line)
        if lines and all(line.startswith("make ") for line in lines):
            place.mkdir()
            await run_lines(Home(place), place, lines, "")
        elif lines:
            await run_block(place, lines)


async def run_block(place: Path, lines: list[str]) -> None:
    home, folder = Home(place / "home"), place / "folder"
    async with ModelServer(lambda _body: Say("A fine day.")) as model:
        place.mkdir()
        write_settings(home, model)
        await prepare(home, folder, place)
        if any("127.0.0.1:8742" in line or line.startswith("alipes page ") for line in lines):
            async with open_serve(home) as served:
                await run_lines(home, folder, lines, served.address)
        else:
            await run_lines(home, folder, [*BEFORE.get(lines[0], ()), *lines], "")


async def run_lines(home: Home, folder: Path, lines: list[str], address: str) -> None:
    link = ""
    for line in lines:
        if line.startswith("make "):
            line = f"make -n -C {ROOT} {line.removeprefix('make ')}"
        command = line.replace("http://127.0.0.1:8742", address).replace("LINK", link or "LINK")
        for word, value in FILLED.items():
            command = re.sub(rf"(?<![\w-]){re.escape(word)}(?![\w-])", value, command)
        command += next((answer for pattern, answer in CONFIRMED if re.match(pattern, line)), "")
        done = await shell(home, folder, command, INPUT.get(line, ""))
        assert done.status in FAILS.get(line, (0,)), f"{command}\n{done.out}{done.err}"
        if "page share " in line and (found := re.search(r"alipes page unshare (\w+)", done.err)):
            link = found[1]


def check_slash(line: str) -> None:
    """Its command exists, and has the words of it that are no values."""
    called, *words = line.removeprefix("/").split()
    known = {name: command.hint for name, command in all_commands().builtin_commands().items()} | OWN
    assert called in known, line
    assert all(word in known[called] for word in words), line


OWN = {"setup": "", "expense-report": "./june"}
"""The commands of the terminal, and of the skill on its page."""


async def shell(home: Home, folder: Path, command: str, stdin: str) -> Finished:
    head = f'set -euo pipefail\nalipes() {{ "{sys.executable}" -m alipes "$@"; }}\n'
    head += 'curl() { command curl --fail-with-body "$@"; }\n'
    path = f"{home.path.parent / 'bin'}:{PATH}"
    process = await asyncio.create_subprocess_exec(
        *("bash", "-c", head + command), env=home.environ(PATH=path), cwd=folder, stdin=-1, stdout=-1, stderr=-1
    )
    return await wait_finished(process, stdin.encode())


async def prepare(home: Home, folder: Path, tmp_path: Path) -> None:
    """A repository with a plugin, servers of other programs, and the conversation `trip`."""
    weather = folder / "plugin" / "weather"
    weather.mkdir(parents=True)
    (weather / "__init__.py").write_text("def register(ctx):\n    pass\n")
    (weather / "plugin.yaml").write_text("name: weather\nversion: 1.0.0\ndescription: The weather.\n")
    copy_home("hermes", tmp_path).rename(tmp_path / ".hermes")
    shutil.copytree(weather, tmp_path / ".hermes" / "plugins" / "weather")
    server = {"command": "uvx", "args": ["mcp-server-time"]}
    for place in (".cursor/mcp.json", "old/mcp.json"):
        (tmp_path / place).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / place).write_text(json.dumps({"mcpServers": {"clock" + place[0].strip("."): server}}))
    (tmp_path / ".hermes" / "config.yaml").write_text(json.dumps({"mcp_servers": {"notes": server}}))
    (tmp_path / "bin").mkdir()
    (tmp_path / "notes").mkdir()
    (tmp_path / "bin" / "uvx").write_text(
        f'#!/bin/sh\nexec "{sys.executable}" "{ROOT / "tests/world/mcp_server.py"}" ok "{tmp_path / "notes"}"\n'
    )
    (tmp_path / "bin" / "uvx").chmod(0o755)
    skill = folder / "expense-report"
    skill.mkdir()
    (skill / "SKILL.md").write_text("---\nname: expense-report\ndescription: Makes reports.\n---\nAdd it all up.\n")
    (folder / "readme.txt").write_text("Hello.\n")
    for words in (("init", "-q"), ("add", "."), ("-c", "user.name=a", "-c", "user.email=a@b.c", "commit", "-qm", "x")):
        process = await asyncio.create_subprocess_exec("git", *words, cwd=folder, env=environment(tmp_path))
        assert await process.wait() == 0
    (folder / "readme.txt").write_text("Hello again.\n")
    assert (await home.run("ask", "--session", "trip", "hello")).status == 0
