"""Prompt templates: files of alipes, Claude Code and pi, their arguments, and what a project may not do."""

import pytest

from alipes.kernel.messages import ToolResult
from alipes.sessions.commands import registry as commands
from alipes.sessions.commands.templates import TemplateFolders, expand_arguments, parse_template
from alipes.sessions.user_shell import split_status
from alipes.testing.scripted_provider import ScriptedProvider
from tests.unit.sessions.test_commands import Desk
from tests.world.commands import core_commands
from tests.world.session_harness import open_sessions

CLAUDE = """---
allowed-tools: Bash(git add:*), Bash(git status:*)
argument-hint: [message]
description: "Create a git commit"
model: claude-3-5-haiku
---

## Context
- Status: !`git status`

Commit with message: $ARGUMENTS
"""


class Shell:
    def __init__(self):
        self.ran = []

    async def run(self, command, inbound, show=None):
        self.ran.append(command)
        return ToolResult("c", f"output of {command}\n[exit code 0]")


def write(path, text):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


@pytest.fixture
def folders(tmp_path):
    (tmp_path / "project").mkdir()
    return TemplateFolders(tmp_path / "home", tmp_path / "user", tmp_path / "project")


@pytest.mark.parametrize(
    ("text", "args", "expanded"),
    [
        ("fix $1 and $2", 'a "b c"', "fix a and b c"),
        ("fix $1 and $2", "a", "fix a and "),
        ("do: $ARGUMENTS", "it's late", "do: it's late"),
        ("do: $@", "a b", "do: a b"),
        ("${1:-main} ${2:-7}", "dev", "dev 7"),
        ("rest: ${@:2} first two: ${@:1:2}", "a b c", "rest: b c first two: a b"),
        ("$1", "$2 x", "$2"),
        ("$ARGUMENTSX costs $ 5", "a", "$ARGUMENTSX costs $ 5"),
    ],
)
def test_arguments_are_filled_in_once(text, args, expanded):
    assert expand_arguments(text, args) == expanded


def test_a_command_of_claude_code_loads_unchanged():
    template = parse_template(CLAUDE, "commit", "commit.md")
    assert (template.description, template.hint, template.model) == (
        "Create a git commit",
        "[message]",
        "claude-3-5-haiku",
    )
    assert template.tools is None and template.text.startswith("## Context")


def test_front_matter_is_optional_and_tools_are_a_list():
    plain = parse_template("# Review\n\nLook.", "review", "r.md")
    assert (plain.description, plain.text) == ("Review", "# Review\n\nLook.")
    assert parse_template("---\ntools: [read_file, terminal]\n---\nx", "r", "").tools == ("read_file", "terminal")
    assert parse_template("---\ntools:\n  - read_file\n  - todo\n---\nx", "r", "").tools == ("read_file", "todo")


def test_a_template_of_the_project_wins_and_the_other_keeps_its_full_name(folders, tmp_path):
    write(tmp_path / "home" / "commands" / "review.md", "mine")
    write(tmp_path / "user" / ".pi" / "agent" / "prompts" / "pi.md", "from pi")
    write(tmp_path / "project" / ".claude" / "commands" / "review.md", "theirs")
    write(tmp_path / "project" / ".pi" / "prompts" / "sub" / "deep.md", "deep")
    found = folders.load()
    assert {name: each.text for name, each in found.items() if ":" not in name} == {"review": "theirs", "pi": "from pi"}
    assert found["user:review"].text == "mine" and found["sub:deep"].project
    write(tmp_path / "home" / "commands" / "new one.md", "later")
    assert folders.load()["new-one"].text == "later"


def test_a_link_out_of_the_project_is_no_template(folders, tmp_path):
    write(tmp_path / "secret.md", "key")
    link = tmp_path / "project" / ".alipes" / "commands" / "x.md"
    link.parent.mkdir(parents=True)
    link.symlink_to(tmp_path / "secret.md")
    assert folders.load() == {}


def test_built_in_commands_come_before_templates_and_these_before_aliases(folders, tmp_path):
    for name in ("new", "clear", "mine"):
        write(tmp_path / "home" / "commands" / f"{name}.md", "text")
    offers = core_commands(folders.load)
    parsed = {name: commands.parse(f"/{name}", offers).command for name in ("new", "clear", "mine", "user:new")}
    assert {name: each.template is not None for name, each in parsed.items()} == {
        "new": False,
        "clear": True,
        "mine": True,
        "user:new": True,
    }
    assert [each.name for each in commands.known_commands(offers)][-2:] == ["clear", "mine"]


@pytest.mark.parametrize("project", [False, True])
async def test_only_your_own_templates_run_commands(tmp_path, folders, project):
    place = tmp_path / "project" / ".claude" if project else tmp_path / "home"
    write(place / "commands" / "commit.md", CLAUDE)
    shell, provider = Shell(), ScriptedProvider(["done"])
    async with open_sessions(tmp_path / "store", provider) as house:
        desk = Desk(house, shell=shell, contributions=core_commands(folders.load))
        parsed = commands.parse("/commit all of it", desk.context.contributions)
        reply = await commands.run(desk.context, parsed)
        assert reply.text.startswith("Its model “claude-3-5-haiku” is not available")
        assert (await desk.ended(reply.turns[0])).ending == "answered"
        facts = await house.store.archive.turn(reply.turns[0])
    said = provider.asked[0].messages[-1].text
    assert said.endswith("Commit with message: all of it")
    assert bool(shell.ran) is not project and ("output of git status\n" in said) is not project
    assert facts.inbound.untrusted == ("the template commit.md of this project" if project else "")


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("a\nb\n[exit code 0]", ("a\nb", "")),
        ("(no output)\n[exit code 0]", ("", "")),
        ("x\n[exit code 2]\n[running p1]", ("x", "exit code 2")),
        ("a\n[b]\n[exit code 0]", ("a\n[b]", "")),
    ],
)
def test_the_output_of_a_command_is_split_from_its_status(text, parts):
    assert split_status(ToolResult("c", text)) == parts
