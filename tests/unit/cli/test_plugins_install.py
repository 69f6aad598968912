"""Installing, updating, rolling back and removing plugins."""

import os
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest

from alipes.cli.plugins.command import run
from alipes.config.loader import load_settings
from alipes.config.paths import Paths
from alipes.kernel.errors import ConfigError
from alipes.plugins.discovery import find_plugins
from alipes.plugins.install.install_dir import hash_tree, open_plugin_directory, read_installed
from alipes.plugins.install.sources import Source, parse_source
from tests.world.plugin_sources import NATIVE, commit, git, hermes, native, wheel


@pytest.fixture
def home(tmp_path, monkeypatch):
    for name in [name for name in os.environ if name.startswith(("ALIPES_", "PIP_", "GIT_"))]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("ALIPES_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_CONFIG_FILE", "/dev/null")
    return tmp_path / "home"


@pytest.fixture
def plugins(home, capfd):
    def call(*argv: str) -> tuple[int, str]:
        try:
            status = run(list(argv))
        except ConfigError as error:
            capfd.readouterr()
            return 2, str(error)
        said = capfd.readouterr()
        return status, said.out

    return call


def used(home: Path) -> list[str]:
    """The names in the folder of plugins that a finder sees."""
    folder = home / "plugins"
    return sorted(each.name for each in folder.iterdir() if each.is_dir() and each.name[0] != ".")


def rest(home: Path) -> list[str]:
    return [path.name for path in (home / "plugins").rglob(".new/*")] + [
        path.name for path in (home / "plugins").rglob(".before/*")
    ]


# --- from a folder


def test_a_folder_is_described_copied_recorded_and_enabled(home, plugins, tmp_path):
    source = native(tmp_path / "here")
    (source / "__pycache__").mkdir()
    (source / "__pycache__" / "x.pyc").write_bytes(b"")
    status, said = plugins("install", str(source), "--yes")
    assert status == 0
    for seen in ("ways 1.0, by A. Walker", "a native plugin", "look_up", "turn_ended", "/way", "not run"):
        assert seen in said
    assert used(home) == ["ways"] and not (home / "plugins" / "ways" / "__pycache__").exists()
    pin = read_installed(home / "plugins")["ways"].now
    assert pin.source == Source("folder", str(source)) and pin.version == "1.0"
    assert pin.sha256 == hash_tree(home / "plugins" / "ways") == hash_tree(source)
    assert load_settings(home, {}).plugins.enabled == ("ways",)
    assert [(each.name, each.kind) for each in find_plugins(load_settings(home, {}))] == [("ways", "native")]
    assert rest(home) == []


def test_without_a_terminal_and_without_yes_nothing_is_installed(home, plugins, tmp_path):
    status, said = plugins("install", str(native(tmp_path / "here")))
    assert status == 2 and "--yes" in said
    assert used(home) == [] and rest(home) == [] and not (home / "config.toml").exists()


def test_no_enable_installs_without_enabling(home, plugins, tmp_path):
    assert plugins("install", str(native(tmp_path / "here")), "--yes", "--no-enable")[0] == 0
    assert used(home) == ["ways"] and load_settings(home, {}).plugins.enabled == ()


def test_a_hermes_plugin_is_described_with_its_powers(home, plugins, tmp_path):
    code = "import gateway.run\ngateway.run.GatewayRunner.go = 1\nimport requests_of_nobody\nimport socket\n"
    source = hermes(tmp_path / "here", code=code + "def register(ctx):\n    ctx.register_tool('hail', 't', {}, f)\n")
    status, said = plugins("install", str(source), "--yes")
    assert status == 0
    for seen in ("a Hermes plugin", "hail", "socket (__init__.py:4)", "__init__.py:2 changes gateway.run"):
        assert seen in said
    assert "missing" in said and "requests_of_nobody (__init__.py:3)" in said


def test_unset_required_variables_are_reported(home, plugins, tmp_path):
    source = native(tmp_path / "here")
    with open(source / "plugin.toml", "a") as opened:
        opened.write('requires_env = ["WAYS_KEY"]\n')
    _, said = plugins("install", str(source), "--yes")
    assert "WAYS_KEY (not set)" in said and "alipes config set WAYS_KEY -" in said


@pytest.mark.parametrize("what", ["installed", "by hand"])
def test_a_duplicate_name_is_refused_and_the_existing_plugin_stays(home, plugins, tmp_path, what):
    if what == "installed":
        plugins("install", str(native(tmp_path / "one")), "--yes")
    else:
        native(home / "plugins" / "ways")
    before = hash_tree(home / "plugins" / "ways")
    status, said = plugins("install", str(native(tmp_path / "two", version="2.0")), "--yes")
    assert status == 2 and "already" in said
    assert hash_tree(home / "plugins" / "ways") == before and rest(home) == []


@pytest.mark.parametrize("name", ["../escape", "a b", ".hidden", "x" * 65, "-x"])
def test_a_dangerous_name_is_refused(home, plugins, tmp_path, name):
    source = native(tmp_path / "here", name=name)
    status, _ = plugins("install", str(source), "--yes")
    assert not (tmp_path / "escape").exists()
    assert status == 2 or used(home) == ["here"]


@pytest.mark.parametrize("target", ["/etc/passwd", "../../there", "{here}/__init__.py"])
def test_a_link_to_the_outside_is_refused(home, plugins, tmp_path, target):
    source = native(tmp_path / "here")
    (source / "secret").symlink_to(target.format(here=source))
    status, said = plugins("install", str(source), "--yes")
    assert status == 2 and "outside" in said and used(home) == []


def test_a_link_inside_stays_a_link(home, plugins, tmp_path):
    (source := native(tmp_path / "here")).joinpath("again.py").symlink_to("__init__.py")
    assert plugins("install", str(source), "--yes")[0] == 0
    assert (home / "plugins" / "ways" / "again.py").is_symlink()


def test_a_folder_that_is_not_a_plugin_shows_where_one_is(home, plugins, tmp_path):
    native(tmp_path / "many" / "first")
    hermes(tmp_path / "many" / "more" / "second")
    status, said = plugins("install", str(tmp_path / "many"), "--yes")
    assert status == 2 and "first and in more/second" in said and "--folder" in said
    assert plugins("install", str(tmp_path / "many"), "--folder", "more/second", "--yes")[0] == 0
    assert used(home) == ["hailer"]


def test_an_unreadable_manifest_is_reported(home, plugins, tmp_path):
    (source := native(tmp_path / "here")).joinpath("plugin.toml").write_text("name = ")
    status, said = plugins("install", str(source), "--yes")
    assert status == 2 and "manifest" in said and used(home) == []


def test_settings_that_cannot_be_changed_leave_nothing_installed(home, plugins, tmp_path):
    home.mkdir()
    (home / "config.toml").write_text("plugins.enabled = []\n")
    (home / "config.toml").chmod(0o400)
    (home / ".config.toml.new").mkdir()  # what would be written first cannot be
    status, _ = plugins("install", str(native(tmp_path / "here")), "--yes")
    assert status == 2 and used(home) == [] and read_installed(home / "plugins") == {}


def test_names_in_a_plugin_cannot_control_the_terminal(home, plugins, tmp_path):
    code = "def register(ctx):\n    ctx.register_command('x\\x1b[2J', f)\n"
    source = hermes(tmp_path / "here", code=code)
    (source / "plugin.yaml").write_text('name: hailer\ndescription: "a\\e[31mb"\n')
    _, said = plugins("install", str(source), "--yes")
    assert "\x1b" not in said + plugins("list")[1] + plugins("doctor")[1]


def test_too_deeply_nested_code_is_reported(home, plugins, tmp_path):
    source = native(tmp_path / "here", code="x = " + "(" * 300 + ")" * 300 + "\ny = a" + ".b" * 5000 + "\n")
    status, said = plugins("install", str(source), "--yes", "--no-enable")
    assert status == 0 and "unread" in said


# --- from Git


def test_a_repository_is_installed_updated_and_rolled_back_by_commit(home, plugins, tmp_path):
    work = native(tmp_path / "work")
    first = commit(work)
    git(tmp_path, "clone", "--quiet", "--bare", str(work), "ways.git")
    git(work, "remote", "add", "there", str(tmp_path / "ways.git"))
    assert plugins("install", f"file://{tmp_path}/ways.git", "--yes")[0] == 0
    assert read_installed(home / "plugins")["ways"].now.exact == first
    assert not (home / "plugins" / "ways" / ".git").exists()
    assert "up to date" in plugins("update", "ways")[1]

    native(work, version="2.0", code=NATIVE + "import subprocess\n")
    second = commit(work)
    git(work, "push", "--quiet", "there", "HEAD")
    status, said = plugins("update", "ways")
    assert status == 2 and "--yes" in said and read_installed(home / "plugins")["ways"].now.exact == first
    status, said = plugins("update", "ways", "--yes")
    assert status == 0 and "new " in said and "processes: subprocess" in said and "--rollback" in said
    pins = read_installed(home / "plugins")["ways"]
    assert (pins.now.exact, pins.before.exact) == (second, first)

    assert plugins("update", "--rollback", "ways")[0] == 0
    assert 'version = "1.0"' in (home / "plugins" / "ways" / "plugin.toml").read_text()
    assert hash_tree(home / "plugins" / "ways") == read_installed(home / "plugins")["ways"].now.sha256
    assert plugins("update", "--rollback", "ways")[0] == 0
    assert 'version = "2.0"' in (home / "plugins" / "ways" / "plugin.toml").read_text()
    assert load_settings(home, {}).plugins.enabled == ("ways",)


@pytest.mark.parametrize("ref", ["v1", "side", "commit"])
def test_ref_is_a_tag_a_branch_or_a_commit(home, plugins, tmp_path, ref):
    work = native(tmp_path / "work")
    old = commit(work)
    git(work, "tag", "v1")
    git(work, "branch", "side")
    native(work, version="2.0")
    commit(work)
    words = ("--ref", old if ref == "commit" else ref, "--yes")
    assert plugins("install", f"git+file://{work}", *words)[0] == 0
    assert read_installed(home / "plugins")["ways"].now.exact == old


def test_a_path_to_a_bare_repository_is_a_git_source(home, plugins, tmp_path):
    commit(native(tmp_path / "work"))
    git(tmp_path, "clone", "--quiet", "--bare", "work", "bare")
    assert plugins("install", str(tmp_path / "bare"), "--yes")[0] == 0
    assert read_installed(home / "plugins")["ways"].now.source.kind == "git"


@pytest.mark.parametrize("what", ["no such ref", "no such repository", "an empty one", "--upload-pack=x"])
def test_an_unreachable_repository_is_reported_with_the_error_of_git(home, plugins, tmp_path, what):
    commit(native(tmp_path / "work"))
    (tmp_path / "empty").mkdir()
    git(tmp_path / "empty", "init", "--quiet")
    words = {
        "no such ref": [f"file://{tmp_path}/work", "--ref", "nowhere"],
        "no such repository": [f"file://{tmp_path}/nowhere"],
        "an empty one": [f"file://{tmp_path}/empty"],
        "--upload-pack=x": ["--", "--upload-pack=x"],
    }[what]
    status, said = plugins("install", "--yes", *words)
    assert status == 2 and said
    assert not (home / "plugins").exists() or (used(home) == [] and rest(home) == [])


def test_a_url_with_a_password_is_refused_and_not_printed(plugins):
    status, said = plugins("install", "https://me:secret1@example.org/x.git", "--yes")
    assert status == 2 and "password" in said and "secret1" not in said


# --- from packages


def test_a_wheel_is_installed_into_its_own_folder(home, plugins, tmp_path):
    status, said = plugins("install", str(wheel(tmp_path / "wheels")), "--yes")
    assert (status == 0 and "package" in said and "look_up" in said and "site/walks" in said) or "look_up" in said
    (found,) = find_plugins(load_settings(home, {}))
    assert (found.name, found.kind, found.manifest.version) == ("ways", "native", "1.0")
    assert found.manifest.author == "A. Walker"
    pin = read_installed(home / "plugins")["ways"].now
    assert pin.exact == "1.0" and [(each.name, len(each.sha256)) for each in pin.packages] == [("walks", 64)]
    done = subprocess.run([sys.executable, "-c", "import walks"], capture_output=True)
    assert done.returncode, "our own Python is as it was"


def test_a_package_is_installed_with_its_missing_dependencies(home, plugins, tmp_path, monkeypatch):
    monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path / "index"))
    wheel(tmp_path / "index", requires=("msgspec", "boots>=2"))
    wheel(tmp_path / "index", "boots", "1.0", files={"boots.py": "import subprocess\n"}, entries="")
    wheel(tmp_path / "index", "boots", "2.1", files={"boots.py": "import subprocess\n"}, entries="")
    status, said = plugins("install", "walks", "--yes")
    assert status == 0 and "brings  " in said.replace("    ", "  ") and "boots 2.1" in said
    assert "subprocess" not in said, "what it brings along is named, and not looked into"
    site = home / "plugins" / "ways" / "site"
    assert (site / "boots.py").exists() and not (site / "msgspec").exists()
    wheel(tmp_path / "index", version="1.2", requires=("boots",))
    assert plugins("update", "ways", "--yes")[0] == 0
    assert read_installed(home / "plugins")["ways"].now.exact == "1.2"
    assert plugins("update", "--rollback", "ways")[0] == 0
    assert (home / "plugins" / "ways" / "site" / "walks-1.0.dist-info").is_dir()


def test_a_package_that_conflicts_with_our_dependencies_is_refused(home, plugins, tmp_path):
    file = wheel(tmp_path / "wheels", requires=("msgspec<0.1",))
    status, said = plugins("install", str(file), "--yes")
    assert status == 2 and "msgspec" in said and used(home) == []


def test_a_package_without_a_wheel_is_refused_because_building_it_would_run_it(home, plugins, tmp_path, monkeypatch):
    (tmp_path / "index").mkdir()
    monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path / "index"))
    source = tmp_path / "walks-1.0"
    source.mkdir()
    (source / "setup.py").write_text(f"open({str(tmp_path / 'ran')!r}, 'w')\n")
    subprocess.run(["tar", "czf", tmp_path / "index" / "walks-1.0.tar.gz", "walks-1.0"], cwd=tmp_path, check=True)
    status, said = plugins("install", "walks", "--yes")
    assert status == 2 and "only wheels" in said and not (tmp_path / "ran").exists()


def test_a_package_without_plugins_is_refused(home, plugins, tmp_path):
    status, said = plugins("install", str(wheel(tmp_path / "wheels", entries="")), "--yes")
    assert status == 2 and "contains no plugin" in said and used(home) == []


def test_entry_chooses_one_plugin_of_a_package(home, plugins, tmp_path):
    entries = "[alipes.plugins]\nways = walks\n[hermes_agent.plugins]\nhailer = walks.hail\nways = walks.hail\n"
    files = {"walks/__init__.py": NATIVE, "walks/hail.py": "def register(ctx):\n    pass\n"}
    file = str(wheel(tmp_path / "wheels", entries=entries, files=files))
    status, said = plugins("install", file, "--yes")
    assert status == 2 and "ways, hailer" in said and "--entry" in said
    assert plugins("install", file, "--entry", "nothing", "--yes")[0] == 2
    assert plugins("install", file, "--entry", "hailer", "--yes")[0] == 0
    assert [(each.name, each.kind) for each in find_plugins(load_settings(home, {}))] == [("hailer", "hermes")]


LOADING = """\
import asyncio, sys
from pathlib import Path
from alipes.plugins.discovery import import_fresh
module = import_fresh("ways", Path(sys.argv[1]))
print(asyncio.run(module.{what}))
"""


@pytest.mark.parametrize(
    "entries, code, what, answer",
    [
        ("ways = walks", NATIVE, 'look_up("Rome")', "Rome is over there"),
        ("ways = walks.way:begin", "async def begin(ctx): return ctx", 'setup("begun")', "begun"),
        ("ways = walks.way:it", "class It:\n    async def turn_ended(self): return 5\nit = It()", "turn_ended()", "5"),
    ],
)
def test_the_generated_module_exports_the_entry_point(home, plugins, tmp_path, entries, code, what, answer):
    files = {"walks/__init__.py": code, "walks/way.py": code}
    file = wheel(tmp_path / "wheels", entries=f"[alipes.plugins]\n{entries}\n", files=files)
    assert plugins("install", str(file), "--yes")[0] == 0
    words = [sys.executable, "-c", LOADING.format(what=what), str(home / "plugins" / "ways")]
    env = {"PYTHONPATH": "src", "PATH": os.environ["PATH"]}
    done = subprocess.run(words, capture_output=True, text=True, env=env, cwd=Path(__file__).parents[3])
    assert done.stdout.strip() == answer, done.stderr


# --- back and away


def test_removing_disables_and_deletes_all_versions(home, plugins, tmp_path):
    source = native(tmp_path / "here")
    plugins("install", str(source), "--yes")
    native(source, version="2.0")
    plugins("update", "ways", "--yes")
    assert plugins("remove", "ways")[0] == 2, "nobody can be asked"
    assert used(home) == ["ways"]
    assert plugins("remove", "ways", "--yes")[0] == 0
    assert used(home) == [] and load_settings(home, {}).plugins.enabled == () and read_installed(home / "plugins") == {}
    assert not (home / "plugins" / ".kept" / "ways").exists()


def test_a_linked_folder_is_unlinked_and_not_deleted(home, plugins, tmp_path):
    source = native(tmp_path / "mine")
    (home / "plugins").mkdir(parents=True)
    (home / "plugins" / "ways").symlink_to(source)
    assert plugins("remove", "ways", "--yes")[0] == 0
    assert (source / "__init__.py").exists() and used(home) == []


def test_a_rollback_needs_a_previous_version(plugins, tmp_path):
    plugins("install", str(native(tmp_path / "here")), "--yes")
    assert "no previous version" in plugins("update", "--rollback", "ways")[1]
    assert "Did you mean ways" in plugins("update", "way", "--yes")[1]


def test_a_manually_added_plugin_cannot_be_updated(home, plugins):
    native(home / "plugins" / "ways")
    assert "was not installed by alipes" in plugins("update", "ways", "--yes")[1]


def test_a_source_with_a_new_name_is_not_an_update(home, plugins, tmp_path):
    source = native(tmp_path / "here")
    plugins("install", str(source), "--yes")
    native(source, name="other")
    status, said = plugins("update", "ways", "--yes")
    assert status == 2 and "is now called other" in said and used(home) == ["ways"]


@pytest.mark.parametrize("step", range(1, 12))
def test_a_kill_during_an_update_leaves_one_whole_version(home, plugins, tmp_path, step):
    source = native(tmp_path / "here")
    plugins("install", str(source), "--yes")
    native(source, version="2.0")
    _killed_at(step, "update", "ways", "--yes")
    with open_plugin_directory(Paths(home)) as shelf:
        pin = shelf.installed["ways"]
    version = 'version = "2.0"' if pin.now.version == "2.0" else 'version = "1.0"'
    assert version in (home / "plugins" / "ways" / "plugin.toml").read_text()
    assert hash_tree(home / "plugins" / "ways") == pin.now.sha256 and rest(home) == []
    if pin.before:
        assert hash_tree(home / "plugins" / ".kept" / "ways") == pin.before.sha256
    assert plugins("update", "ways", "--yes")[0] == 0


@pytest.mark.parametrize("step", range(1, 10))
def test_a_kill_during_a_rollback_leaves_both_versions(home, plugins, tmp_path, step):
    source = native(tmp_path / "here")
    plugins("install", str(source), "--yes")
    native(source, version="2.0")
    plugins("update", "ways", "--yes")
    _killed_at(step, "update", "--rollback", "ways")
    with open_plugin_directory(Paths(home)) as shelf:
        pin = shelf.installed["ways"]
    assert {pin.now.version, pin.before.version} == {"1.0", "2.0"} and rest(home) == []
    assert hash_tree(home / "plugins" / "ways") == pin.now.sha256
    assert hash_tree(home / "plugins" / ".kept" / "ways") == pin.before.sha256


KILLING = """\
import os, sys
left = int(sys.argv.pop(1))
def watch(event, args):
    global left
    if event in ("os.rename", "shutil.rmtree", "os.mkdir") or event == "open" and args[1] in ("wb", "w"):
        left -= 1
        if not left:
            os._exit(9)
sys.addaudithook(watch)
from alipes.cli.plugins.command import run
sys.exit(run(sys.argv[1:]))
"""


def _killed_at(step: int, *words: str) -> None:
    """Run the command in a process that dies just before its `step`th change to the disk."""
    env = {**os.environ, "PYTHONPATH": "src"}
    done = subprocess.run(
        [sys.executable, "-c", KILLING, str(step), *words], env=env, cwd=Path(__file__).parents[3], capture_output=True
    )
    assert done.returncode in (0, 9), done.stderr


def test_two_commands_at_once_exclude_each_other(home, plugins, tmp_path):
    with open_plugin_directory(Paths(home)):
        status, said = plugins("install", str(native(tmp_path / "here")), "--yes")
    assert status == 2 and "Another" in said
    assert plugins("install", str(tmp_path / "here"), "--yes")[0] == 0


def test_a_broken_record_is_reported_and_nothing_changes(home, plugins, tmp_path):
    (home / "plugins").mkdir(parents=True)
    (home / "plugins" / "installed.json").write_text("{")
    status, said = plugins("install", str(native(tmp_path / "here")), "--yes")
    assert status == 2 and "installed.json" in said


# --- what SOURCE means


@pytest.mark.parametrize(
    "text, kind, place",
    [
        ("https://example.org/a/b.git", "git", "https://example.org/a/b.git"),
        ("git@example.org:a/b.git", "git", "git@example.org:a/b.git"),
        ("git+ssh://git@example.org/a", "git", "ssh://git@example.org/a"),
        ("walks", "package", "walks"),
        ("walks[all]>=2,<3", "package", "walks[all]>=2,<3"),
    ],
)
def test_the_kind_of_a_source_is_detected(text, kind, place):
    assert parse_source(text) == Source(kind, place)


@pytest.mark.parametrize("text", ["", "./nowhere", "a/b/c", "../owner/name", "--index-url=x", "a b c", "x;y"])
def test_an_invalid_source_is_refused_with_a_hint(text):
    with pytest.raises(ConfigError, match=r"There is no folder|is not a folder, Git URL or package"):
        parse_source(text)


def test_the_record_is_json_that_other_programs_can_read(home, plugins, tmp_path):
    plugins("install", str(native(tmp_path / "here")), "--yes")
    record = msgspec.json.decode((home / "plugins" / "installed.json").read_bytes())
    assert record["plugins"]["ways"]["now"]["source"]["kind"] == "folder"
