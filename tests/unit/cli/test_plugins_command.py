"""`alipes plugins`: list, enable, disable, doctor and new."""

import os
import tomllib
from pathlib import Path

import msgspec
import pytest

from alipes.app import open_app
from alipes.cli.plugins.command import ACTIONS, PluginsOptions, parse_plugins, run
from alipes.cli.plugins.list import PluginEntry, check_plugins_state, format_added, list_plugins
from alipes.config.loader import load_settings
from alipes.console import help_text
from alipes.console.common import format_rows
from alipes.core.standalone import make_registry
from alipes.features.all import FEATURES
from alipes.kernel.errors import ConfigError
from alipes.plugins.discovery import PluginStatus, save_status
from tests.world.plugin_sources import NATIVE, hermes, native

COMMENTED = """\
# how I like it
model = "scripted"   # for now

[plugins]            # few, and good
enabled = [
  "ways",            # knows the way
]
disabled = ["other"] # not this one

[plugins.entries.ways]
unit = "km"          # not miles
"""


@pytest.fixture
def home(tmp_path, monkeypatch):
    for name in [name for name in os.environ if name.startswith("ALIPES_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("ALIPES_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    (tmp_path / "home" / "plugins").mkdir(parents=True, mode=0o700)
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


def put(home: Path, *names: str, code: str = NATIVE) -> None:
    for name in names:
        native(home / "plugins" / name, name, code=code)


# --- enabling


def test_enabling_keeps_comments_and_other_settings(home, plugins):
    (home / "config.toml").write_text(COMMENTED)
    put(home, "ways", "other", "third")
    assert plugins("enable", "third") == (0, "third is enabled from the next start.\n")
    text = (home / "config.toml").read_text()
    assert [line for line in COMMENTED.splitlines() if line not in text.splitlines()] == []
    assert tomllib.loads(text)["plugins"]["enabled"] == ["ways", "third"]


def test_enabling_a_disabled_plugin_removes_it_from_the_disabled_list(home, plugins):
    (home / "config.toml").write_text(COMMENTED)
    put(home, "other")
    assert plugins("enable", "other")[0] == 0
    settings = load_settings(home, {})
    assert settings.plugins.enabled == ("ways", "other") and settings.plugins.disabled == ()
    assert "# not this one" in (home / "config.toml").read_text()


def test_disabling_removes_only_that_plugin(home, plugins):
    (home / "config.toml").write_text(COMMENTED.replace('  "ways", ', '  "a", # first\n  "ways", '))
    put(home, "a", "ways")
    assert plugins("disable", "ways") == (0, "ways is disabled from the next start.\n")
    text = (home / "config.toml").read_text()
    assert '"a", # first' in text and "knows the way" not in text and "# not miles" in text
    assert load_settings(home, {}).plugins.enabled == ("a",)


def test_a_deleted_plugin_can_still_be_disabled(home, plugins):
    (home / "config.toml").write_text(COMMENTED)
    assert plugins("disable", "ways")[0] == 0
    assert load_settings(home, {}).plugins.enabled == ()


def test_enabling_twice_is_not_an_error(home, plugins):
    put(home, "ways")
    assert plugins("disable", "ways") == (0, "ways is not enabled.\n")
    plugins("enable", "ways")
    before = (home / "config.toml").read_text()
    assert plugins("enable", "ways") == (0, "ways is already enabled.\n")
    assert (home / "config.toml").read_text() == before


def test_an_unknown_name_is_refused_with_similar_names(home, plugins):
    put(home, "ways")
    for action in ("enable", "disable", "doctor", "remove"):
        status, said = plugins(action, "wasy")
        assert status == 2 and "Did you mean ways?" in said
    assert not (home / "config.toml").exists()
    assert "No plugins are installed" in plugins("enable", "x")[1] or "list" in plugins("enable", "x")[1]


def test_a_variable_that_overrides_the_file_is_reported(home, plugins, monkeypatch):
    put(home, "ways")
    monkeypatch.setenv("ALIPES_PLUGINS_ENABLED", "other")
    status, said = plugins("enable", "ways")
    assert status == 2 and "ALIPES_PLUGINS_ENABLED" in said and not (home / "config.toml").exists()


def test_unset_required_variables_are_reported_before_it_is_enabled(home, plugins):
    put(home, "ways")
    with open(home / "plugins" / "ways" / "plugin.toml", "a") as opened:
        opened.write('requires_env = ["WAYS_KEY"]\n')
    said = plugins("enable", "ways")[1]
    assert said.index("alipes config set WAYS_KEY -") < said.index("ways is enabled")


def test_a_file_hook_is_enabled_by_default(home, plugins):
    folder = home / "hooks" / "greet"
    folder.mkdir(parents=True)
    (folder / "HOOK.yaml").write_text("name: greet\nevents: [agent:start]\n")
    (folder / "handler.py").write_text("def handle(event_type, context): pass\n")
    assert [(each.name, each.state) for each in list_plugins(load_settings(home, {}))] == [("greet", "enabled")]
    assert plugins("disable", "greet")[0] == 0
    assert load_settings(home, {}).plugins.disabled == ("greet",)
    assert [(each.name, each.state) for each in list_plugins(load_settings(home, {}))] == [("greet", "disabled")]


# --- listing


def test_the_list_shows_state_source_and_what_each_adds(home, plugins):
    put(home, "ways")
    hermes(home / "plugins" / "hailer")
    plugins("enable", "hailer")
    status, said = plugins("list")
    head, first, second = said.splitlines()
    assert status == 0 and head.split() == ["NAME", "VERSION", "STATE", "FROM", "ADDS"]
    assert first.split(maxsplit=3) == ["hailer", "0.3.0", "enabled", "manual  1 tool, 1 hook"]
    assert second.split(maxsplit=3) == ["ways", "1.0", "disabled", "manual  1 tool, 1 hook, /way"]


def test_an_empty_list_says_how_to_install_a_plugin(plugins):
    status, said = plugins()
    assert status == 0 and "install" in said and "new" in said


def test_the_state_in_a_running_process_is_shown(home):
    put(home, "ways", "broken")
    (home / "config.toml").write_text('[plugins]\nenabled = ["ways", "broken"]\n')
    settings = load_settings(home, {})
    facts = (
        PluginStatus("ways", "on", version="1.0", tools=("a", "b"), cli=("way",), provides=("platform:foot",)),
        PluginStatus("broken", "failed", why="it is broken", version="1.0"),
    )
    save_status(settings.paths, facts)
    broken, ways = list_plugins(settings)
    assert ways.state == "on" and format_added(ways) == "2 tools, alipes way, platform foot"
    assert broken.state == "failed" and broken.why.startswith("it is broken (loaded ")


def test_the_state_of_another_version_is_ignored(home):
    put(home, "ways")
    (home / "config.toml").write_text('[plugins]\nenabled = ["ways"]\n')
    settings = load_settings(home, {})
    save_status(settings.paths, (PluginStatus("ways", "failed", why="it was broken", version="0.9"),))
    assert [(each.state, each.why) for each in list_plugins(settings)] == [("enabled", "")]


def test_an_enabled_name_without_a_plugin_and_a_broken_manifest_are_failures(home, plugins):
    put(home, "ways")
    (home / "plugins" / "ways" / "plugin.toml").write_text("name = ")
    (home / "config.toml").write_text('[plugins]\nenabled = ["ways", "nothing"]\n')
    seen = {each["name"]: each for each in msgspec.json.decode(plugins("list", "--json")[1])}
    assert seen["nothing"]["state"] == "failed" and seen["ways"]["state"] == "failed"
    assert "plugin.toml" in seen["ways"]["why"]


def test_a_summary_counts_in_singular_and_plural():
    entry = PluginEntry("x", "on", adds={"tools": ("a",), "hooks": ("b", "c"), "skills": ("d",), "commands": ("/e",)})
    assert format_added(entry) == "1 tool, 2 hooks, 1 skill, /e"


# --- the doctor


def findings(said: str) -> list[tuple[str, str, str]]:
    return [(each["about"], each["state"], each["says"]) for each in msgspec.json.decode(said)]


def test_the_doctor_loads_enabled_plugins_and_scans_the_others(home, plugins, tmp_path):
    ran = tmp_path / "ran"
    put(home, "ways")
    put(home, "idle", code=f"import os\nos.mkdir({str(ran)!r})\n" + NATIVE)
    plugins("enable", "ways")
    status, said = plugins("doctor", "--json")
    idle, ways = findings(said)
    assert status == 0 and not ran.exists()
    assert ways[:2] == ("ways", "ok") and "1 tool, 1 hook, /way" in ways[2]
    assert idle[:2] == ("idle", "note") and "not enabled" in idle[2]
    status, said = plugins("doctor", "idle")
    assert ran.exists(), "named, it is opened"


@pytest.mark.parametrize(
    "code, seen",
    [
        ("import nothing_of_this_name\n", "nothing_of_this_name"),
        ("async def before_tol(call): ...\n", "before_tool"),
        ("async def before_tool(cal): ...\n", "cal"),
        ("raise RuntimeError('no luck')\n", "no luck"),
        ("x = (\n", "__init__.py"),
        ("async def setup(ctx):\n    ctx.command('help', None)\n", "help"),
        (NATIVE.replace("look_up", "terminal"), "terminal"),
    ],
)
def test_the_doctor_reports_why_one_cannot_be_loaded(home, plugins, code, seen):
    put(home, "ways", code=code)
    plugins("enable", "ways")
    status, said = plugins("doctor", "--json")
    wrong = [says for _, state, says in findings(said) if state == "wrong"]
    assert status == 1 and wrong and seen in " ".join(wrong)


def test_the_doctor_names_missing_variables(home, plugins, capfd):
    put(home, "ways")
    with open(home / "plugins" / "ways" / "plugin.toml", "a") as opened:
        opened.write('requires_env = ["WAYS_KEY"]\n')
    needs = "needs WAYS_KEY, which is not set"
    _, said = plugins("doctor", "--json")
    assert ("ways", "note", f"it {needs}") in findings(said), "also before it is enabled"
    plugins("enable", "ways")
    _, said = plugins("doctor", "--json")
    assert ("ways", "note", f"it {needs}") in findings(said) and "`alipes config set WAYS_KEY -`" in said
    assert said.count("needs WAYS_KEY") == 1, "not once more as a warning"
    (note,) = [each for each in check_plugins_state(load_settings(home, {})) if each.state == "note"]
    assert (note.says, note.advice) == (f"ways {needs}", "`alipes config set WAYS_KEY -`")


@pytest.mark.parametrize(
    "code, seen, unseen",
    [
        ("import agent.not_there\n", "agent.not_there of Hermes Agent, which alipes does not provide", "pip install"),
        ("from tools.not_there import x\n", "tools.not_there.x of Hermes Agent", "pip install"),
        ("import yaml_of_nobody\n", "imports yaml_of_nobody, which is not installed", "pip install yaml_of_nobody'"),
        (
            "try:\n    from gone_a import x\nexcept ImportError:\n    from gone_b import x\n",
            "it needs the module gone_a",
            "gone_b",
        ),
        (
            "try:\n    from agent.gone import x\nexcept ImportError:\n    from .gone import x\n",
            "it needs agent",
            "pip install",
        ),
        ("try:\n    import gone_a\nexcept ImportError:\n    raise ImportError('see page 7')\n", "see page 7", "gone_b"),
    ],
)
@pytest.mark.parametrize("kind", [native, hermes])
def test_the_doctor_names_what_hermes_has_and_the_first_of_several_imports(home, plugins, kind, code, seen, unseen):
    kind(home / "plugins" / "it", "it", code=code + "def register(ctx): ...\n")
    plugins("enable", "it")
    status, said = plugins("doctor", "--json")
    assert status == 1 and any(seen in says for _, _, says in findings(said)), said
    assert unseen not in said


def test_a_dashboard_is_listed_as_not_served_and_its_code_is_no_problem(home, plugins):
    folder = home / "plugins" / "pages"
    (folder / "dashboard").mkdir(parents=True)
    (folder / "plugin.yaml").write_text("name: pages\n")
    (folder / "__init__.py").write_text("def register(ctx):\n    ctx.register_dashboard_auth_provider(object())\n")
    (folder / "dashboard" / "plugin_api.py").write_text("import not_there_at_all\nimport hermes_cli.web_server\n")
    plugins("enable", "pages")
    status, said = plugins("doctor", "--json")
    assert status == 0 and not [each for each in findings(said) if each[1] == "wrong"]
    assert [says for _, _, says in findings(said) if "not served" in says] == [
        "pages: its dashboard auth provider is not served by alipes",
        "its dashboard is not served by alipes",
    ]


def test_modules_that_alipes_provides_are_not_missing(home, plugins):
    folder = home / "plugins" / "uses"
    folder.mkdir(parents=True)
    (folder / "plugin.yaml").write_text("name: uses\n")
    (folder / "__init__.py").write_text("import utils\nfrom utils import env_int\ndef register(ctx): ...\n")
    plugins("enable", "uses")
    status, said = plugins("doctor")
    assert status == 0 and "pip install" not in said


def test_the_doctor_finds_name_conflicts(home, plugins):
    put(home, "one", "two")
    plugins("enable", "one")
    plugins("enable", "two")
    status, said = plugins("doctor", "--json")
    assert status == 1
    assert [about for about, state, _ in findings(said) if state == "wrong"] == ["two"]
    assert "one" in said


def test_the_doctor_reports_unsupported_hermes_internals_with_file_and_line(home, plugins):
    code = "def register(ctx):\n    import gateway.run\n    gateway.run.GatewayRunner = None\n"
    hermes(home / "plugins" / "hailer", code=code)
    plugins("enable", "hailer")
    status, said = plugins("doctor")
    assert status == 1 and "not supported" in said
    assert f"{home / 'plugins' / 'hailer' / '__init__.py'}:3 changes gateway.run.GatewayRunner" in said


def test_the_doctor_reports_changed_files_and_hidden_commands(home, plugins, tmp_path):
    code = "async def setup(ctx):\n    ctx.cli('doctor', 'help', lambda parser: None)\n"
    plugins("install", str(native(tmp_path / "here", code=code)), "--yes")
    with open(home / "plugins" / "ways" / "__init__.py", "a") as opened:
        opened.write("# changed\n")
    _, said = plugins("doctor", "--json")
    notes = [says for _, state, says in findings(said) if state == "note"]
    assert any("changed since" in says for says in notes) and any("`alipes doctor` is hidden" in says for says in notes)


def test_the_doctor_does_not_record_states(home, plugins):
    put(home, "ways")
    plugins("enable", "ways")
    plugins("doctor")
    assert not (home / "plugins" / ".state.json").exists()


async def test_the_reserved_names_are_those_of_a_conversation(home):
    async with open_app(load_settings(home, {})) as app:
        only_of_agents = {"agent_tool"}  # what another agent calls is shown as this one
        assert set(make_registry(FEATURES).tools()) == set(app.contributions.tools()) | only_of_agents


# --- beginning one


@pytest.mark.parametrize("words", [[], ["--hermes"]])
def test_a_new_plugin_can_be_installed_and_loaded(home, plugins, tmp_path, words):
    status, said = plugins("new", "my-notes", *words)
    assert status == 0 and "my-notes/__init__.py" in said and "python -m pytest my-notes" in said
    assert plugins("install", "my-notes", "--yes")[0] == 0
    status, said = plugins("doctor")
    assert status == 0 and "1 tool, 1 hook, /my-notes" in said
    assert plugins("new", "my-notes")[0] == 2, "it is there already"


@pytest.mark.parametrize("name", ["Notes", "a b", "../x", "1st", "", "x" * 40])
def test_a_name_that_could_not_be_a_command_is_refused(plugins, tmp_path, name):
    assert plugins("new", "--", name)[0] == 2
    assert [path.name for path in tmp_path.iterdir()] == ["home"]


# --- words


def test_every_action_and_option_is_in_the_help():
    for word in (*ACTIONS, "--ref", "--folder", "--entry", "--no-enable", "--rollback", "--hermes", "--json", "--yes"):
        assert word in help_text.PLUGINS


def test_words_become_options():
    assert parse_plugins([]) == PluginsOptions("list")
    assert parse_plugins(["install", "x", "--ref", "v1", "-y"]) == PluginsOptions("install", "x", ref="v1", yes=True)
    assert parse_plugins(["update", "--rollback", "x"]) == PluginsOptions("update", "x", rollback=True)


@pytest.mark.parametrize(
    "words, seen",
    [
        (["instal", "x"], "Did you mean install?"),
        (["install"], "needs a SOURCE"),
        (["enable"], "needs a NAME"),
        (["enable", "a", "b"], "takes one NAME"),
        (["list", "x"], "takes no name"),
        (["enable", "x", "--ref", "y"], "--ref is for `install`"),
        (["remove", "x", "--rollback"], "--rollback is for `update`"),
    ],
)
def test_wrong_usage_exits_with_status_2_and_a_hint(capsys, words, seen):
    with pytest.raises(SystemExit) as left:
        parse_plugins(words)
    said = capsys.readouterr().err
    assert left.value.code == 2 and seen in said and "alipes plugins --help" in said


def test_rows_are_aligned_and_wrapped_to_the_terminal():
    rows = [("", "title"), ("from", "a"), ("commands", "word " * 30)]
    seen = list(format_rows(rows, 60))
    assert seen[0] == "title" and seen[1] == "  from      a"
    assert all(len(line) <= 60 for line in seen) and seen[3].startswith(" " * 12 + "word")
    assert len(list(format_rows(rows))) == 3
