"""Policies of projects: what the settings and the project make visible, writable and hidden."""

import os
from pathlib import Path

import pytest

from alipes.config.settings import SandboxAccess, SandboxConfig
from alipes.kernel.turns import Address, Inbound, Origin, Turn
from alipes.runtime.sandbox.backend import CommandScope
from alipes.runtime.sandbox.policy import short_hash
from alipes.tools.sandbox import ProjectSandboxes, SandboxExtras


class World:
    def __init__(self, tmp_path, config=None, environ=None):
        self.home = tmp_path / "home"
        self.project = self.home / "project"
        self.project.mkdir(parents=True)
        self.sandboxes = ProjectSandboxes(
            config or SandboxConfig(), home=str(self.home), alipes_home=self.home / ".alipes", environ=environ or {}
        )

    def policy(self, workdir=None):
        return self.sandboxes.make_policy(CommandScope("s1", str(workdir or self.project)))


@pytest.fixture
def world(tmp_path):
    return World(tmp_path)


def write(path, text=""):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return path


def test_the_project_is_writable_and_each_project_has_its_own_home_and_temporary_folder(world):
    other = world.home / "other"
    other.mkdir()
    one, two = world.policy(), world.policy(other)
    assert one.writable == (str(world.project),)
    assert one.private_home != two.private_home and one.scratch != two.scratch and one.caches != two.caches
    assert world.policy().private_home == one.private_home


def scope_of(world, session="s1", sender="ann", **more):
    """The scope of a command in a turn."""
    address = Address("telegram", "c", more.pop("chat_type", "dm"))
    inbound = Inbound("i", address, sender, "hi", workdir=str(world.project), **more)
    return CommandScope(session, str(world.project), Turn("t", session, inbound))


def test_each_conversation_has_its_own_home_and_temporary_folder_and_a_caller_shares_downloads(world):
    make = world.sandboxes.make_policy
    one, again, two, bob = (
        make(scope_of(world)),
        make(scope_of(world)),
        make(scope_of(world, "s2")),
        make(scope_of(world, "s3", "bob")),
    )
    assert (one.private_home, one.scratch) == (again.private_home, again.scratch)
    assert len({each.private_home for each in (one, two, bob)}) == len({each.scratch for each in (one, two, bob)}) == 3
    assert one.caches == two.caches != bob.caches


def test_members_of_a_group_do_not_share_a_home(world):
    ann, bob = (world.sandboxes.make_policy(scope_of(world, sender=name, chat_type="group")) for name in ("ann", "bob"))
    assert ann.private_home != bob.private_home and ann.scratch != bob.scratch


def test_a_subagent_has_the_home_and_temporary_folder_of_its_conversation(world):
    origin = Origin(Address("telegram", "c"), "s1")
    inner = world.sandboxes.make_policy(scope_of(world, "s9", parent="t", origin=origin))
    outer = world.sandboxes.make_policy(scope_of(world))
    assert (inner.private_home, inner.scratch) == (outer.private_home, outer.scratch)


def test_downloads_of_a_home_that_was_shared_are_kept_and_nothing_else_of_it(world):
    state = world.home / ".alipes" / "sandbox"
    shared = state / "home" / short_hash(str(world.project))
    write(shared / ".cache" / "pip" / "http" / "a")
    write(shared / ".config" / "git" / "config", "evil")
    outside = write(world.home / "mine" / "registry" / "x").parent.parent
    (shared / ".cargo").symlink_to(outside)
    policy = world.policy()
    assert Path(policy.caches, "cache-pip", "http", "a").exists() and (outside / "registry").exists()
    assert not Path(policy.private_home, ".config").exists()
    again = ProjectSandboxes(SandboxConfig(), home=str(world.home), alipes_home=world.home / ".alipes", environ={})
    again.make_policy(CommandScope("s1", str(world.project)))
    assert not shared.exists() and Path(policy.caches, "cache-pip", "http", "a").exists()


def test_temporary_folders_belong_to_this_user_only(world):
    assert os.stat(world.policy().scratch).st_mode & 0o077 == 0


def test_homes_and_temporary_folders_that_nobody_used_for_a_month_are_deleted(tmp_path, world):
    policy = world.policy()
    old = [Path(each).parent / "old" for each in (policy.scratch, policy.private_home, policy.caches)]
    for folder in old:
        folder.mkdir()
        os.utime(folder, (0, 0))
    World(tmp_path / "two").policy()
    assert all(folder.exists() for folder in old)
    again = ProjectSandboxes(SandboxConfig(), home=str(world.home), alipes_home=world.home / ".alipes", environ={})
    again.make_policy(CommandScope("s1", str(world.project)))
    assert not any(folder.exists() for folder in old)
    assert Path(policy.private_home).exists() and Path(policy.caches).exists()


@pytest.mark.parametrize("place", ["home", "above"])
def test_a_project_that_contains_the_home_is_read_only_and_its_secrets_are_hidden(world, place):
    write(world.home / ".ssh" / "id_ed25519", "canary")
    write(world.home / ".alipes" / ".env", "canary")
    policy = world.policy(world.home if place == "home" else world.home.parent)
    assert policy.writable == () and policy.private_home == ""
    assert {str(world.home / ".ssh"), str(world.home / ".alipes")} <= set(policy.hidden)


def test_files_with_secrets_in_the_project_are_hidden_and_examples_are_not(world):
    for name in (".env", ".env.local", ".env.example"):
        write(world.project / name)
    assert {os.path.basename(path) for path in world.policy().hidden if path.startswith(str(world.project))} == {
        ".env",
        ".env.local",
    }


def test_files_with_secrets_in_folders_of_the_project_are_hidden(world):
    for name in (
        "apps/web/.env",
        "deploy/prod.env",
        "apps/api/.env.production",
        "src/environment.py",
        ".env/bin/python",
    ):
        write(world.project / name)
    (world.project / "linked.env").symlink_to(world.project / "config" / "real")
    write(world.project / "config" / "real")
    hidden = {path for path in world.policy().hidden if path.startswith(str(world.project))}
    wanted = ("apps/web/.env", "deploy/prod.env", "apps/api/.env.production", "config/real")
    assert hidden == {str(world.project / name) for name in wanted}


def test_hooks_and_ci_files_are_protected_and_missing_hook_folders_are_made(world):
    write(world.project / ".git" / "config")
    write(world.project / ".github" / "workflows" / "ci.yml")
    policy = world.policy()
    assert policy.protected == (str(world.project / ".git" / "hooks"), str(world.project / ".github" / "workflows"))


def test_the_project_is_the_work_tree_that_contains_the_working_directory(world):
    write(world.project / ".git" / "HEAD")
    write(world.project / ".env")
    inside = write(world.project / "src" / "deep" / ".vscode" / "tasks.json").parent.parent
    policy = world.policy(inside)
    assert policy.workdir == str(world.project) and policy.writable == (str(world.project),)
    assert policy.protected == (str(world.project / ".git" / "hooks"), str(inside / ".vscode" / "tasks.json"))
    assert str(world.project / ".env") in policy.hidden
    assert policy.private_home == world.policy().private_home


@pytest.mark.parametrize("kind", ["work tree", "submodule"])
def test_a_git_directory_outside_that_names_the_work_tree_is_shared_and_its_settings_are_protected(world, kind):
    git = world.home / "main" / ".git"
    named = git / "worktrees" / "x" if kind == "work tree" else git / "modules" / "x"
    shared = git if kind == "work tree" else named
    write(named / "HEAD")
    if kind == "work tree":
        write(named / "gitdir", f"{world.project}/.git\n")
        write(named / "commondir", "../..\n")
    write(shared / "config", "" if kind == "work tree" else f"[core]\n\tworktree = {world.project}\n")
    write(world.project / ".git", f"gitdir: {named}\n")
    policy = world.policy()
    assert policy.writable == (str(world.project), str(shared))
    assert policy.protected == (str(shared / "hooks"), str(shared / "config"))


def test_a_git_directory_outside_that_names_another_work_tree_is_not_shared(world):
    git = world.home / "main" / ".git"
    write(git / "worktrees" / "x" / "HEAD")
    write(git / "worktrees" / "x" / "gitdir", f"{world.home}/elsewhere/.git\n")
    write(world.project / ".git", f"gitdir: {git}/worktrees/x\n")
    policy = world.policy()
    assert policy.writable == (str(world.project),)
    (source,) = (source for seen, source in policy.files if seen == str(world.project / ".git"))
    assert "core.worktree" in Path(source).read_text()


@pytest.mark.skipif(os.getuid() != 0, reason="only root can make files of another user")
def test_a_work_tree_above_that_belongs_to_another_user_is_not_the_project(world):
    write(world.home / "shared" / ".git" / "HEAD")
    inside = write(world.home / "shared" / "mine" / "x").parent
    assert world.policy(inside).writable == (str(world.home / "shared"),)
    os.chown(world.home / "shared", 12345, 12345)
    assert world.policy(inside).writable == (str(inside),)


def test_a_folder_that_everybody_may_write_to_is_not_the_project_of_a_folder_in_it(world):
    write(world.home / "open" / ".git" / "HEAD")
    inside = write(world.home / "open" / "mine" / "x").parent
    (world.home / "open").chmod(0o1777)
    assert world.policy(inside).writable == (str(inside),)


def test_what_was_approved_is_writable_and_the_files_beside_it_stay_protected(world):
    write(world.project / ".git" / "hooks" / "x")
    for name in ("a.yml", "b.yml", "sub/c.yml", "sub/d.yml"):
        write(world.project / ".github" / "workflows" / name)
    folder = f"{world.project}/.github/workflows"
    asked = (f"{folder}/a.yml", f"{folder}/sub/c.yml", f"{folder}/new.yml", f"{world.project}/.git/hooks/x")
    policy = world.sandboxes.make_policy(CommandScope("s1", str(world.project), write=asked))
    assert policy.protected == (f"{world.project}/.git/hooks", f"{folder}/b.yml", f"{folder}/sub/d.yml")


def test_git_gets_the_name_of_the_user_and_no_programs_or_secrets(world):
    write(
        world.home / ".gitconfig",
        "[user]\n\tname = Ann\n\temail = ann@example.org\n\tsigningkey = canary\n[core]\n\tpager = canary\n"
        '[credential]\n\thelper = canary\n[url "https://canary@x"]\n\tinsteadOf = y\n[pull]\n\trebase = true\n'
        '[merge "x"]\n\tdriver = canary\n',
    )
    ((seen, source),) = world.policy().files
    assert seen == str(world.home / ".gitconfig")
    text = Path(source).read_text()
    assert "name = Ann" in text and "rebase = true" in text and "canary" not in text


def test_hooks_are_off_unless_the_repository_is_trusted(tmp_path, world):
    assert ("GIT_CONFIG_VALUE_0", "/dev/null") in world.policy().environment
    trusting = World(tmp_path / "two", SandboxConfig(trust=(str(tmp_path / "two" / "home" / "project"),)))
    assert ("GIT_CONFIG_VALUE_0", "/dev/null") not in trusting.policy().environment


def test_toolchains_in_the_home_are_readable(tmp_path):
    world = World(tmp_path, environ={"PATH": f"{tmp_path}/home/tools/bin:/usr/bin"})
    for name in (".cargo/bin/cargo", ".rustup/x", "tools/bin/mine"):
        write(world.home / name)
    assert {str(world.home / name) for name in (".cargo/bin", ".rustup", "tools/bin")} <= set(world.policy().readable)


def test_package_settings_are_shown_unless_they_contain_credentials(world):
    write(world.home / ".npmrc", "registry=https://registry.example.org/\n")
    write(world.home / ".config/pip/pip.conf", "[global]\nindex-url = https://me:canary@pypi.example.org/simple\n")
    shown = {seen for seen, _ in world.policy().files}
    assert str(world.home / ".npmrc") in shown and str(world.home / ".config/pip/pip.conf") not in shown


def test_settings_of_a_project_and_of_a_mode_are_added(tmp_path):
    data, more = write(tmp_path / "data" / "x").parent, write(tmp_path / "more" / "x").parent
    home = tmp_path / "home"
    projects = {
        str(home / "project"): SandboxAccess(read=(str(data),), network="none"),
        str(home / "other"): SandboxAccess(write=(str(more),)),
    }
    config = SandboxConfig(projects=projects, modes={"ask": SandboxAccess(environment=("HF_TOKEN",))})
    policy = World(tmp_path, config, {"HF_TOKEN": "x"}).policy()
    assert str(data) in policy.readable and str(more) not in policy.writable
    assert policy.network == "none" and ("HF_TOKEN", "x") in policy.environment


def test_folders_of_skills_are_shown_although_the_alipes_home_is_hidden(world):
    skill = write(world.home / ".alipes" / "skills" / "tea" / "SKILL.md").parent
    inside = write(world.project / ".claude" / "skills" / "mail" / "SKILL.md").parent
    extras = SandboxExtras(folders=[lambda _workdir: (str(skill), str(inside), "/nowhere")])
    sandboxes = ProjectSandboxes(
        SandboxConfig(), home=str(world.home), alipes_home=world.home / ".alipes", environ={}, extras=extras
    )
    shown = sandboxes.make_policy(CommandScope("s1", str(world.project))).files
    assert (str(skill), str(skill)) in shown
    assert not any(str(inside) in pair or "/nowhere" in pair for pair in shown)


def test_what_a_person_allowed_a_conversation_is_visible_to_its_commands_without_secrets(world):
    granted = world.home / "p2"
    for name in ("a.py", ".env", "notes/b.txt"):
        write(granted / name)
    write(world.home / "p3" / "x")
    extras = SandboxExtras()
    rights = {"s1": ((str(granted),), (str(world.home / "p3"),))}
    extras.add_grants(lambda scope: rights.get(scope.session, ((), ())))
    sandboxes = ProjectSandboxes(
        SandboxConfig(), home=str(world.home), alipes_home=world.home / ".alipes", environ={}, extras=extras
    )
    policy = sandboxes.make_policy(CommandScope("s1", str(world.project)))
    assert str(granted) in policy.readable and str(world.home / "p3") in policy.writable
    assert str(granted / ".env") in policy.hidden
    other = sandboxes.make_policy(CommandScope("s2", str(world.project)))
    assert str(granted) not in other.readable and str(world.home / "p3") not in other.writable
