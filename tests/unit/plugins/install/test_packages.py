"""The packages that plugins need, entry points in folders, and owner/name on GitHub."""

import os
import shutil
import subprocess
import sys
from io import StringIO
from pathlib import Path

import pytest

from alipes.cli.plugins.command import run
from alipes.config.loader import load_settings
from alipes.config.paths import Paths
from alipes.kernel.errors import ConfigError
from alipes.plugins.discovery import Manifest, find_plugins
from alipes.plugins.install.install_dir import open_plugin_directory, read_installed
from alipes.plugins.install.project import read_requirements
from alipes.plugins.install.sources import Source, parse_source
from tests.world.plugin_sources import HERMES, NATIVE, commit, git, hermes, native, wheel


@pytest.fixture
def home(tmp_path, monkeypatch):
    for name in [name for name in os.environ if name.startswith(("ALIPES_", "PIP_", "GIT_"))]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("ALIPES_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_CONFIG_FILE", "/dev/null")
    monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path / "index"))
    (tmp_path / "index").mkdir()
    monkeypatch.chdir(tmp_path)
    return tmp_path / "home"


@pytest.fixture
def plugins(home, capfd):
    def call(*argv: str) -> tuple[int, str]:
        try:
            status = run(list(argv))
        except ConfigError as error:
            said = capfd.readouterr()
            return 2, f"{said.err}{error}"
        said = capfd.readouterr()
        return status, said.out + said.err

    return call


@pytest.fixture
def answer(monkeypatch):
    """Answers the questions on a terminal."""

    def answer(*lines: str) -> None:
        terminal = StringIO("".join(f"{line}\n" for line in lines))
        terminal.isatty = lambda: True
        monkeypatch.setattr(sys, "stdin", terminal)

    return answer


def boots(index: Path, version: str) -> None:
    wheel(index, "boots", version, files={"boots.py": f"version = {version!r}\n"}, entries="")


def run_python(code: str, *words: object) -> str:
    env = {"PYTHONPATH": "src", "PATH": os.environ["PATH"]}
    argv = [sys.executable, "-c", code, *map(str, words)]
    done = subprocess.run(argv, capture_output=True, text=True, env=env, cwd=Path(__file__).parents[3])
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


IMPORT = """\
import sys
from pathlib import Path
from alipes.plugins.discovery import import_fresh
module = import_fresh("it", Path(sys.argv[1]))
print(module.answer)
"""


# --- packages that need hermes-agent


@pytest.mark.parametrize("needs", ["hermes-agent", "hermes-agent>=0.9", "hermes_agent<0.2", "Hermes-Agent==0.15.*"])
def test_a_package_that_needs_hermes_agent_is_installed_without_it(home, plugins, tmp_path, needs):
    boots(tmp_path / "index", "2.1")
    entries = "[hermes_agent.plugins]\nhailer = walks\n"
    wheel(tmp_path / "index", entries=entries, files={"walks/__init__.py": HERMES}, requires=(needs, "boots>=2"))
    status, said = plugins("install", "walks", "--yes")
    assert status == 0, said
    site = home / "plugins" / "hailer" / "site"
    assert (site / "boots.py").exists() and not list(site.glob("hermes*"))
    names = [each.name for each in read_installed(home / "plugins")["hailer"].now.packages]
    assert names == ["walks", "boots"]


def test_extras_of_a_package_that_needs_hermes_agent_are_installed(home, plugins, tmp_path):
    boots(tmp_path / "index", "2.1")
    needs = ("hermes-agent<0.2", 'boots; extra == "warm"', 'nothing; extra == "cold"')
    wheel(tmp_path / "index", requires=needs)
    assert plugins("install", "walks[warm]", "--yes")[0] == 0
    assert (home / "plugins" / "ways" / "site" / "boots.py").exists()


def test_a_dependency_that_needs_hermes_agent_does_not_bring_it(home, plugins, tmp_path):
    wheel(tmp_path / "index", "boots", files={"boots.py": ""}, entries="", requires=("hermes-agent>=0.9",))
    wheel(tmp_path / "index", requires=("boots",))
    assert plugins("install", "walks", "--yes")[0] == 0
    assert not list((home / "plugins" / "ways" / "site").glob("hermes*"))


def test_hermes_agent_itself_is_not_a_plugin(plugins):
    status, said = plugins("install", "hermes-agent", "--yes")
    assert status == 2 and "install the plugin itself" in said


# --- folders with only an entry point


def project(folder: Path, entries: str, files: dict[str, str], more: str = "") -> Path:
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    about = '[project]\nname = "walks"\nversion = "1.5"\ndescription = "Walks."\nauthors = [{name = "A. Walker"}]\n'
    (folder / "pyproject.toml").write_text(f"{about}{more}\n{entries}")
    return folder


NATIVE_ENTRY = '[project.entry-points."alipes.plugins"]\nways = "walks"\n'
HERMES_ENTRY = '[project.entry-points."hermes_agent.plugins"]\nhailer = "hermes_hail.plugin:register"\n'


@pytest.mark.parametrize("base", ["", "src/", "python/"])
def test_a_folder_with_only_an_entry_point_is_installed(home, plugins, tmp_path, base):
    files = {
        f"{base}walks/__init__.py": NATIVE + "\nfrom walks.deep import answer\n",
        f"{base}walks/deep.py": "answer = 7\n",
    }
    source = project(tmp_path / "here", NATIVE_ENTRY, {**files, "tests/test_it.py": "", "data.txt": "x"})
    status, said = plugins("install", str(source), "--yes")
    assert status == 0 and "ways 1.5, by A. Walker" in said and "look_up" in said, said
    (found,) = find_plugins(load_settings(home, {}))
    assert (found.name, found.kind, found.manifest.version) == ("ways", "native", "1.5")
    assert (home / "plugins" / "ways" / "data.txt").exists()
    assert run_python(IMPORT, home / "plugins" / "ways") == "7"
    assert plugins("doctor")[0] == 0 and "up to date" in plugins("update", "ways")[1]


def test_a_repository_with_only_a_hermes_entry_point_is_installed(home, plugins, tmp_path, monkeypatch):
    files = {"hermes_hail/__init__.py": "", "hermes_hail/plugin.py": HERMES, "hermes_hail/plugin.yaml": "name: x\n"}
    files["hermes_hail/plugin.yaml"] += "requires_env: [HAIL_KEY]\n"
    commit(project(tmp_path / "work", HERMES_ENTRY, files))
    status, said = plugins("install", f"file://{tmp_path}/work", "--yes")
    assert status == 0 and "a Hermes plugin" in said and "HAIL_KEY" in said, said
    (found,) = find_plugins(load_settings(home, {}))
    assert (found.name, found.kind, found.manifest.requires_env) == ("hailer", "hermes", ("HAIL_KEY",))
    monkeypatch.setenv("HAIL_KEY", "x")
    assert "1 tool, 1 hook" in plugins("doctor", "hailer")[1]


def test_a_folder_with_plugin_yaml_and_its_code_behind_an_entry_point_is_loaded(home, plugins, tmp_path):
    files = {"src/hermes_hail/plugin.py": HERMES, "plugin.yaml": "name: greeter\n"}
    assert plugins("install", str(project(tmp_path / "here", HERMES_ENTRY, files)), "--yes")[0] == 0
    assert "1 tool, 1 hook" in plugins("doctor", "greeter")[1]


def test_entry_chooses_one_plugin_of_a_folder(home, plugins, tmp_path):
    entries = NATIVE_ENTRY + 'other = "walks.other"\n'
    source = str(project(tmp_path / "here", entries, {"walks/__init__.py": NATIVE, "walks/other.py": NATIVE}))
    status, said = plugins("install", source, "--yes")
    assert status == 2 and "--entry" in said
    assert plugins("install", source, "--entry", "other", "--yes")[0] == 0
    assert [each.name for each in find_plugins(load_settings(home, {}))] == ["other"]


def test_an_entry_point_without_its_module_is_reported(plugins, tmp_path):
    status, said = plugins("install", str(project(tmp_path / "here", NATIVE_ENTRY, {"README": ""})), "--yes")
    assert status == 2 and "the module walks, which is not in the folder" in said


# --- dependencies of folders and repositories


@pytest.mark.parametrize("declared", ["pyproject.toml", "requirements.txt", "plugin.yaml"])
def test_packages_are_installed_into_the_folder_of_the_plugin(home, plugins, tmp_path, declared):
    boots(tmp_path / "index", "2.1")
    source = hermes(tmp_path / "here", code="import boots\nanswer = boots.version\n" + HERMES)
    text = {
        "pyproject.toml": '[project]\nname = "x"\ndependencies = ["boots>=2", "hermes-agent"]\n',
        "requirements.txt": "# what it needs\nboots >= 2  # warm\nhermes-agent>=0.1\n",
        "plugin.yaml": "name: hailer\npip_dependencies:\n- boots>=2\n",
    }[declared]
    (source / declared).write_text(text)
    status, said = plugins("install", str(source), "--yes")
    assert status == 0 and "boots 2.1: would be installed into its own folder" in said and "missing" not in said
    folder = home / "plugins" / "hailer"
    assert (folder / ".packages" / "boots.py").exists()
    assert [each.name for each in read_installed(home / "plugins")["hailer"].now.dependencies] == ["boots"]
    assert run_python(IMPORT, folder) == "2.1"
    assert subprocess.run([sys.executable, "-c", "import boots"], capture_output=True).returncode, "not in our Python"
    status, said = plugins("doctor")
    assert status == 0 and "changed" not in said and "boots" not in said
    assert plugins("remove", "hailer", "--yes")[0] == 0 and not folder.exists()


def needing(folder: Path, *lines: str) -> Path:
    native(folder, code="import boots\nanswer = boots.version\n" + NATIVE)
    (folder / "requirements.txt").write_text("\n".join(lines))
    return folder


def test_without_consent_the_plugin_is_installed_and_its_needs_are_named(home, plugins, answer, tmp_path):
    boots(tmp_path / "index", "2.1")
    answer("y", "n")
    status, said = plugins("install", str(needing(tmp_path / "here", "boots>=2")), "--no-enable")
    assert status == 0 and "Also install boots 2.1 into its folder?" in said
    needs = "boots>=2, which is not installed"
    assert needs in said and "`alipes plugins update ways`" in said
    assert not (home / "plugins" / "ways" / ".packages").exists()
    assert needs in plugins("doctor")[1]
    _, said = plugins("enable", "ways")
    assert said.index(needs) < said.index("is enabled")
    answer("n")
    status, said = plugins("update", "ways")
    assert status == 1 and "ways was not changed" in said and "Update ways" not in said, "its code is the same"
    answer("y")
    status, said = plugins("update", "ways")
    assert status == 0 and "with boots 2.1; to return to 1.0" in said
    assert (home / "plugins" / "ways" / ".packages" / "boots.py").exists()
    assert needs not in plugins("doctor")[1]


def test_no_packages_installs_the_plugin_alone(home, plugins, tmp_path):
    boots(tmp_path / "index", "2.1")
    source = needing(tmp_path / "here", "boots")
    assert plugins("install", str(source), "--yes", "--no-packages")[0] == 0
    assert not (home / "plugins" / "ways" / ".packages").exists()
    assert "up to date" in plugins("update", "ways", "--no-packages")[1]


def test_an_update_renews_the_packages_and_a_rollback_returns_to_the_old_ones(home, plugins, tmp_path):
    boots(tmp_path / "index", "2.1")
    plugins("install", str(needing(tmp_path / "here", "boots>=2")), "--yes")
    assert "up to date" in plugins("update", "ways")[1]
    boots(tmp_path / "index", "2.2")
    status, said = plugins("update", "ways", "--yes")
    assert status == 0 and "boots 2.2" in said
    folder = home / "plugins" / "ways"
    assert run_python(IMPORT, folder) == "2.2"
    assert plugins("update", "--rollback", "ways")[0] == 0 and run_python(IMPORT, folder) == "2.1"
    (tmp_path / "here" / "requirements.txt").write_text("")
    assert plugins("update", "ways", "--yes")[0] == 0 and not (folder / ".packages").exists()


def test_an_update_whose_packages_cannot_be_found_changes_nothing(home, plugins, tmp_path):
    boots(tmp_path / "index", "2.1")
    source = needing(tmp_path / "here", "boots>=2")
    plugins("install", str(source), "--yes")
    needing(source, "boots>=3")
    status, said = plugins("update", "ways", "--yes")
    assert status == 2 and "was not updated" in said and "boots" in said
    assert run_python(IMPORT, home / "plugins" / "ways") == "2.1"


def test_a_plugin_whose_packages_clash_with_ours_or_cannot_be_found_is_not_installed(home, plugins, tmp_path):
    for needed in ("boots>=9", "msgspec<0.1"):
        source = str(needing(tmp_path / "here", needed))
        status, said = plugins("install", source, "--yes")
        assert status == 1 and "its packages cannot be installed" in said and needed in said
        assert "ways was not installed. To install it without its packages, add --no-packages." in said
        assert not (home / "plugins" / "ways").exists()
    assert plugins("install", source, "--yes", "--no-packages")[0] == 0
    status, said = plugins("update", "ways", "--yes")
    assert status == 2 and "ways was not updated" in said and "msgspec" in said


def test_without_its_packages_a_plugin_says_what_it_lacks(home, plugins, tmp_path):
    plugins("install", str(needing(tmp_path / "here", "boots>=9")), "--yes", "--no-packages")
    assert "boots>=9, which is not installed" in plugins("doctor", "ways")[1]


def test_changed_packages_are_reported(home, plugins, tmp_path):
    boots(tmp_path / "index", "2.1")
    plugins("install", str(needing(tmp_path / "here", "boots")), "--yes")
    (home / "plugins" / "ways" / ".packages" / "boots.py").write_text("version = 'other'\n")
    assert "its files changed" in plugins("doctor")[1]
    with open_plugin_directory(Paths(home)) as directory:
        assert "ways" in directory


def test_addresses_and_options_are_not_given_to_pip(home, plugins, tmp_path):
    lines = [
        "-e .",
        "--index-url https://evil.example",
        "x @ https://evil.example/x.whl",
        "git+https://e.example/x",
        "./y",
    ]
    source = needing(tmp_path / "here", *lines)
    found = read_requirements(source, Manifest())
    assert found.packages == () and len(found.refused) == 5
    status, said = plugins("install", str(source), "--yes")
    assert status == 0 and "ignored" in said


def test_requirements_for_other_systems_are_not_missing(home, plugins, tmp_path):
    source = native(tmp_path / "here")
    (source / "requirements.txt").write_text('boots>=2; sys_platform == "win32"\n')
    assert plugins("install", str(source), "--yes")[0] == 0
    assert "boots" not in plugins("doctor")[1]


def test_two_versions_of_a_package_are_reported(home, plugins, tmp_path):
    boots(tmp_path / "index", "2.1")
    boots(tmp_path / "index", "2.2")
    for name, needs in (("one", "boots==2.1"), ("two", "boots==2.2")):
        native(tmp_path / name, name, code="async def turn_ended(ending): ...\n")
        (tmp_path / name / "requirements.txt").write_text(needs)
        assert plugins("install", str(tmp_path / name), "--yes")[0] == 0
    status, said = plugins("doctor")
    assert status == 0 and "it brings boots 2.2, but one brings 2.1" in said
    plugins("disable", "one")
    assert "brings boots" not in plugins("doctor")[1]


def test_a_kill_while_only_the_packages_are_exchanged_returns_to_the_old_ones(home, plugins, tmp_path):
    boots(tmp_path / "index", "2.1")
    plugins("install", str(needing(tmp_path / "here", "boots")), "--yes")
    place, before = home / "plugins" / "ways", home / "plugins" / ".before" / "ways"
    before.parent.mkdir()
    place.rename(before)
    shutil.copytree(before, place)  # the new version is in place, but not yet recorded
    (place / ".packages" / "boots.py").write_text("version = '2.2'\n")
    with open_plugin_directory(Paths(home)) as directory:
        assert directory.installed["ways"].now.matches(place)
    assert run_python(IMPORT, place) == "2.1"


# --- owner/name on GitHub


@pytest.fixture
def github(home, tmp_path):
    """A local repository in place of https://github.com/ann/ways."""
    commit(native(tmp_path / "work"))
    (tmp_path / "github" / "ann").mkdir(parents=True)
    git(tmp_path, "clone", "--quiet", "--bare", "work", "github/ann/ways.git")
    (tmp_path / ".gitconfig").write_text(f'[url "file://{tmp_path}/github/"]\n  insteadOf = https://github.com/\n')


@pytest.mark.usefixtures("github")
def test_owner_and_name_are_shown_as_an_address_and_asked_for(home, plugins, answer):
    address = "https://github.com/ann/ways.git"
    answer("n")
    status, said = plugins("install", "ann/ways")
    assert status == 1 and f"ann/ways means {address}" in said and f"Fetch {address}?" in said
    assert not (home / "plugins").exists()
    answer("y", "y")
    status, said = plugins("install", "ann/ways")
    assert status == 0 and "ways is installed" in said
    assert read_installed(home / "plugins")["ways"].now.source == Source("git", address)


@pytest.mark.usefixtures("github")
def test_owner_and_name_need_a_terminal_or_yes(home, plugins):
    status, said = plugins("install", "ann/ways")
    assert status == 2 and "https://github.com/ann/ways.git" in said and "--yes" in said
    assert plugins("install", "ann/ways", "--yes")[0] == 0


def test_an_existing_folder_is_not_looked_for_on_github(home, tmp_path):
    native(tmp_path / "ann" / "ways")
    assert parse_source("ann/ways").kind == "folder"
    assert parse_source("ann/other.git") == Source("git", "https://github.com/ann/other.git")
