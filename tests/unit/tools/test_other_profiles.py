"""Tools of one profile cannot reach what belongs to another."""

from pathlib import Path

import pytest

from alipes.agent.approval.assessment import assess_call
from alipes.config.paths import PROFILES_MARK
from alipes.config.settings import SandboxConfig
from alipes.kernel.messages import ToolCall
from alipes.runtime.sandbox.backend import CommandScope
from alipes.tools.common import Places
from alipes.tools.sandbox import ProjectSandboxes


@pytest.fixture
def root(tmp_path: Path) -> Path:
    for home in (tmp_path / "own", *(tmp_path / "own" / "profiles" / name for name in ("work", "play"))):
        home.mkdir(parents=True, exist_ok=True)
        for name in ("SOUL.md", ".env", "config.toml"):
            (home / name).write_text("canary")
    (tmp_path / "own" / "profiles" / PROFILES_MARK).touch()
    return tmp_path / "own"


def places_of(root: Path, home: Path) -> Places:
    return Places(home=str(root.parent), alipes_home=str(home), alipes_root=str(root), scratch=())


def test_everything_of_another_profile_is_withheld(root):
    play, work = places_of(root, root / "profiles" / "play"), root / "profiles" / "work"
    for path in (work / "SOUL.md", work / ".env", root / "SOUL.md", root / "config.toml"):
        assert play.secrecy(str(path)) == "ours" and play.is_withheld(str(path))
    assert play.secrecy(str(root / "profiles" / "play" / "SOUL.md")) == ""


def test_the_default_profile_cannot_read_the_others(root):
    default = places_of(root, root)
    assert default.secrecy(str(root / "profiles" / "work" / "SOUL.md")) == "ours"
    assert default.secrecy(str(root / "SOUL.md")) == ""


def test_a_hard_link_to_the_keys_of_another_profile_is_withheld(root, tmp_path):
    (tmp_path / "notes.txt").hardlink_to(root / "profiles" / "work" / ".env")
    assert places_of(root, root / "profiles" / "play").is_withheld(str(tmp_path / "notes.txt"))


@pytest.mark.parametrize(
    ("tool", "argument", "text"),
    [
        ("terminal", "command", "cat {work}/SOUL.md"),
        ("terminal", "command", "cp {work}/.env ."),
        ("terminal", "command", "cat {root}/config.toml"),
        ("terminal", "command", "echo x > {work}/SOUL.md"),
        ("read_file", "path", "{work}/SOUL.md"),
        ("write_file", "path", "{work}/skills/x/SKILL.md"),
    ],
)
def test_no_approval_lets_a_tool_reach_another_profile(root, tmp_path, tool, argument, text):
    call = ToolCall("1", tool, {argument: text.format(work=root / "profiles" / "work", root=root)})
    risk = assess_call(call, str(tmp_path / "project"), places_of(root, root / "profiles" / "play"))
    assert risk is not None and risk.floor


def test_the_sandbox_of_a_profile_hides_the_homes_of_all(root, tmp_path):
    home, work = tmp_path / "user", root / "profiles" / "work"
    home.mkdir()
    sandboxes = ProjectSandboxes(SandboxConfig(), home=str(home), alipes_home=work, environ={})
    policy = sandboxes.make_policy(CommandScope(workdir=str(tmp_path)))
    assert str(root) in policy.hidden
