"""`alipes plugins`: lists, enables, disables, examines and begins plugins, in words a person can act on."""

import os
import tomllib
from pathlib import Path

import msgspec
import pytest

from alipes.app import open_app
from alipes.cli import help_text
from alipes.cli.commands import skills as skills_command
from alipes.cli.plugins.command import ACTIONS, PluginsOptions, parse, run
from alipes.cli.plugins.describe import lines
from alipes.cli.plugins.list import Entry, entries, summary
from alipes.cli.plugins.standalone import new_offers
from alipes.config.settings import load
from alipes.kernel.errors import ConfigError
from alipes.plugins.discovery import PluginFacts, keep
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


def test_enabling_keeps_every_comment_and_everything_else(home, plugins):
    (home / "config.toml").write_text(COMMENTED)
    put(home, "ways", "other", "third")
    assert plugins("enable", "third") == (0, "third is enabled, from the next start on.\n")
    text = (home / "config.toml").read_text()
    assert [line for line in COMMENTED.splitlines() if line not in text.splitlines()] == []
    assert tomllib.loads(text)["plugins"]["enabled"] == ["ways", "third"]


def test_enabling_what_was_disabled_takes_it_out_of_that_list(home, plugins):
    (home / "config.toml").write_text(COMMENTED)
    put(home, "other")
    assert plugins("enable", "other")[0] == 0
    settings = load(home, {})
    assert settings.plugins.enabled == ("ways", "other") and settings.plugins.disabled == ()
    assert "# not this one" in (home / "config.toml").read_text()


def test_disabling_takes_out_the_line_of_that_plugin_and_no_other(home, plugins):
    (home / "config.toml").write_text(COMMENTED.replace('  "ways", ', '  "a", # first\n  "ways", '))
    put(home, "a", "ways")
    assert plugins("disable", "ways") == (0, "ways is disabled, from the next start on.\n")
    text = (home / "config.toml").read_text()
    assert '"a", # first' in text and "knows the way" not in text and "# not miles" in text
    assert load(home, {}).plugins.enabled == ("a",)


def test_a_plugin_that_is_gone_can_still_be_disabled(home, plugins):
    (home / "config.toml").write_text(COMMENTED)
    assert plugins("disable", "ways")[0] == 0
    assert load(home, {}).plugins.enabled == ()


def test_doing_it_twice_is_no_error(home, plugins):
    put(home, "ways")
    assert plugins("disable", "ways") == (0, "ways is not enabled.\n")
    plugins("enable", "ways")
    before = (home / "config.toml").read_text()
    assert plugins("enable", "ways") == (0, "ways is enabled already.\n")
    assert (home / "config.toml").read_text() == before


def test_an_unknown_name_is_refused_and_near_ones_are_named(home, plugins):
    put(home, "ways")
    for action in ("enable", "disable", "doctor", "remove"):
        status, said = plugins(action, "wasy")
        assert status == 2 and "Did you mean ways?" in said
    assert not (home / "config.toml").exists()
    assert "There are none yet" in plugins("enable", "x")[1] or "list" in plugins("enable", "x")[1]


def test_a_variable_that_goes_over_the_file_is_told(home, plugins, monkeypatch):
    put(home, "ways")
    monkeypatch.setenv("ALIPES_PLUGINS_ENABLED", "other")
    status, said = plugins("enable", "ways")
    assert status == 2 and "ALIPES_PLUGINS_ENABLED" in said and not (home / "config.toml").exists()


def test_what_it_needs_and_is_not_set_is_told_when_it_is_enabled(home, plugins):
    put(home, "ways")
    with open(home / "plugins" / "ways" / "plugin.toml", "a") as opened:
        opened.write('requires_env = ["WAYS_KEY"]\n')
    assert "alipes config set WAYS_KEY -" in plugins("enable", "ways")[1]


def test_a_file_hook_is_in_use_until_it_is_disabled(home, plugins):
    folder = home / "hooks" / "greet"
    folder.mkdir(parents=True)
    (folder / "HOOK.yaml").write_text("name: greet\nevents: [agent:start]\n")
    (folder / "handler.py").write_text("def handle(event_type, context): pass\n")
    assert [(each.name, each.state) for each in entries(load(home, {}))] == [("greet", "enabled")]
    assert plugins("disable", "greet")[0] == 0
    assert load(home, {}).plugins.disabled == ("greet",)
    assert [(each.name, each.state) for each in entries(load(home, {}))] == [("greet", "disabled")]


# --- listing


def test_the_list_tells_state_origin_and_what_each_adds(home, plugins):
    put(home, "ways")
    hermes(home / "plugins" / "hailer")
    plugins("enable", "hailer")
    status, said = plugins("list")
    head, first, second = said.splitlines()
    assert status == 0 and head.split() == ["NAME", "VERSION", "STATE", "FROM", "ADDS"]
    assert first.split(maxsplit=3) == ["hailer", "0.3.0", "enabled", "by hand  1 tool, 1 hook"]
    assert second.split(maxsplit=3) == ["ways", "1.0", "disabled", "by hand  1 tool, 1 hook, /way"]


def test_with_no_plugin_the_list_says_how_to_get_one(plugins):
    status, said = plugins()
    assert status == 0 and "install" in said and "new" in said


def test_how_a_running_process_found_them_is_told(home):
    put(home, "ways", "broken")
    (home / "config.toml").write_text('[plugins]\nenabled = ["ways", "broken"]\n')
    settings = load(home, {})
    facts = (
        PluginFacts("ways", "on", version="1.0", tools=("a", "b"), cli=("way",), provides=("platform:foot",)),
        PluginFacts("broken", "failed", why="it is broken", version="1.0"),
    )
    keep(settings.paths, facts)
    broken, ways = entries(settings)
    assert ways.state == "on" and summary(ways) == "2 tools, alipes way, platform foot"
    assert broken.state == "failed" and broken.why.startswith("it is broken (opened ")


def test_what_a_process_told_of_another_version_does_not_count(home):
    put(home, "ways")
    (home / "config.toml").write_text('[plugins]\nenabled = ["ways"]\n')
    settings = load(home, {})
    keep(settings.paths, (PluginFacts("ways", "failed", why="it was broken", version="0.9"),))
    assert [(each.state, each.why) for each in entries(settings)] == [("enabled", "")]


def test_an_enabled_name_without_a_plugin_and_a_broken_manifest_are_failures(home, plugins):
    put(home, "ways")
    (home / "plugins" / "ways" / "plugin.toml").write_text("name = ")
    (home / "config.toml").write_text('[plugins]\nenabled = ["ways", "nothing"]\n')
    told = {each["name"]: each for each in msgspec.json.decode(plugins("list", "--json")[1])}
    assert told["nothing"]["state"] == "failed" and told["ways"]["state"] == "failed"
    assert "plugin.toml" in told["ways"]["why"]


def test_a_summary_counts_in_singular_and_plural():
    entry = Entry(
        "x", "on", adds={"tools": ("a",), "hooks": ("b", "c"), "skills": ("d",), "commands": ("/e",)}
    )
    assert summary(entry) == "1 tool, 2 hooks, 1 skill, /e"


# --- the doctor


def findings(said: str) -> list[tuple[str, str, str]]:
    return [(each["about"], each["state"], each["says"]) for each in msgspec.json.decode(said)]


def test_the_doctor_opens_what_is_enabled_and_reads_the_rest(home, plugins, tmp_path):
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
    "code, told",
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
def test_the_doctor_tells_why_one_cannot_be_opened(home, plugins, code, told):
    put(home, "ways", code=code)
    plugins("enable", "ways")
    status, said = plugins("doctor", "--json")
    wrong = [says for _, state, says in findings(said) if state == "wrong"]
    assert status == 1 and wrong and told in " ".join(wrong)


def test_the_doctor_names_missing_variables(home, plugins):
    put(home, "ways")
    with open(home / "plugins" / "ways" / "plugin.toml", "a") as opened:
        opened.write('requires_env = ["WAYS_KEY"]\n')
    plugins("enable", "ways")
    status, said = plugins("doctor")
    assert status == 1 and "WAYS_KEY" in said and "FAIL" in said and "1 to be put right" in said


def test_the_doctor_finds_two_that_want_the_same_name(home, plugins):
    put(home, "one", "two")
    plugins("enable", "one")
    plugins("enable", "two")
    status, said = plugins("doctor", "--json")
    assert status == 1
    assert [about for about, state, _ in findings(said) if state == "wrong"] == ["two"]
    assert "one" in said


def test_the_doctor_tells_with_file_and_line_who_reaches_into_the_original(home, plugins):
    code = "def register(ctx):\n    import gateway.run\n    gateway.run.GatewayRunner = None\n"
    hermes(home / "plugins" / "hailer", code=code)
    plugins("enable", "hailer")
    status, said = plugins("doctor")
    assert status == 1 and "out of scope" in said
    assert f"{home / 'plugins' / 'hailer' / '__init__.py'}:3 changes gateway.run.GatewayRunner" in said


def test_the_doctor_tells_when_files_were_changed_and_when_a_command_cannot_be_reached(
    home, plugins, tmp_path
):
    code = "async def setup(ctx):\n    ctx.cli('doctor', 'help', lambda parser: None)\n"
    plugins("install", str(native(tmp_path / "here", code=code)), "--yes")
    with open(home / "plugins" / "ways" / "__init__.py", "a") as opened:
        opened.write("# changed\n")
    _, said = plugins("doctor", "--json")
    notes = [says for _, state, says in findings(said) if state == "note"]
    assert any("changed since" in says for says in notes) and any(
        "`alipes doctor` is ours" in says for says in notes
    )


def test_the_doctor_leaves_no_word_of_how_they_stand(home, plugins):
    put(home, "ways")
    plugins("enable", "ways")
    plugins("doctor")
    assert not (home / "plugins" / ".state.json").exists()


async def test_the_names_that_are_taken_here_are_those_of_a_conversation(home):
    async with open_app(load(home, {})) as app:
        assert set(new_offers().tools()) == set(app.offers.tools())


# --- beginning one


@pytest.mark.parametrize("words", [[], ["--hermes"]])
def test_a_new_plugin_is_one_that_can_be_installed_and_opened(home, plugins, tmp_path, words):
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


# --- skills


def skills(*argv: str) -> int:
    return skills_command.run(list(argv))


def test_skills_are_listed_and_shown(home, plugins, tmp_path, capfd):
    (tmp_path / "packing.md").write_text("# Packing\nLess.\n")
    (tmp_path / "deep").mkdir()
    (tmp_path / "deep" / "SKILL.md").write_text("deep\n")
    code = (
        "async def setup(ctx):\n"
        f"    ctx.skill('packing', {str(tmp_path / 'packing.md')!r}, 'What to take along')\n"
        f"    ctx.skill('deep', {str(tmp_path / 'deep')!r})\n"
        "    ctx.skill('gone', '/nowhere')\n"
    )
    put(home, "ways", code=code)
    plugins("enable", "ways")
    assert skills() == 0
    said = capfd.readouterr().out.splitlines()
    assert said[0].split() == ["NAME", "PLUGIN", "DESCRIPTION", "PATH"]
    assert "packing" in said[3] and "What to take along" in said[3] and "ways" in said[3]
    assert skills("show", "packing") == 0 and capfd.readouterr().out == "# Packing\nLess.\n"
    assert skills("show", "deep") == 0 and capfd.readouterr().out == "deep\n"
    with pytest.raises(ConfigError, match="Did you mean packing"):
        skills("show", "pakcing")
    with pytest.raises(ConfigError, match="/nowhere"):
        skills("show", "gone")
    assert skills("list", "--json") == 0
    assert [each["name"] for each in msgspec.json.decode(capfd.readouterr().out)] == [
        "deep",
        "gone",
        "packing",
    ]


def test_without_plugins_there_are_no_skills_and_it_says_so(home, capfd):
    assert skills() == 0 and "No enabled plugin" in capfd.readouterr().out


# --- words


def test_every_action_and_option_is_in_the_manual():
    for word in (
        *ACTIONS,
        "--ref",
        "--folder",
        "--entry",
        "--no-enable",
        "--rollback",
        "--hermes",
        "--json",
        "--yes",
    ):
        assert word in help_text.PLUGINS


def test_words_become_options():
    assert parse([]) == PluginsOptions("list")
    assert parse(["install", "x", "--ref", "v1", "-y"]) == PluginsOptions("install", "x", ref="v1", yes=True)
    assert parse(["update", "--rollback", "x"]) == PluginsOptions("update", "x", rollback=True)


@pytest.mark.parametrize(
    "words, told",
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
def test_wrong_words_end_with_status_2_and_a_way_out(capsys, words, told):
    with pytest.raises(SystemExit) as left:
        parse(words)
    said = capsys.readouterr().err
    assert left.value.code == 2 and told in said and "alipes plugins --help" in said


def test_rows_are_aligned_and_broken_at_the_width_of_a_terminal():
    rows = [("", "title"), ("from", "a"), ("commands", "word " * 30)]
    told = list(lines(rows, 60))
    assert told[0] == "title" and told[1] == "  from      a"
    assert all(len(line) <= 60 for line in told) and told[3].startswith(" " * 12 + "word")
    assert len(list(lines(rows))) == 3
