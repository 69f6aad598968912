"""`alipes config`: shows, explains and changes settings, and never damages a file."""

import os
import stat
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
import tomlkit
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from alipes.cli.commands.config import run
from alipes.config.editor import change, has_value, set_secret
from alipes.config.environment import parse_env
from alipes.config.loader import load_settings
from alipes.config.toml_lines import split_key
from alipes.kernel.errors import ConfigError

COMMENTED = """\
# how I like it
model = "groq/llama"   # the fast one

[serve]        # gateway
port = 9000    # not 8742
"""


@pytest.fixture
def home(tmp_path, monkeypatch):
    for name in [
        name for name in os.environ if name.startswith("ALIPES_") or name.upper().endswith(("_PROXY", "_KEY"))
    ]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("ALIPES_HOME", str(tmp_path / "home"))
    return tmp_path / "home"


@pytest.fixture
def config(home, capsys):
    def call(*argv: str) -> tuple[int, str, str]:
        status = run(list(argv))
        said = capsys.readouterr()
        return status, said.out, said.err

    return call


@pytest.fixture
def written(home):
    home.mkdir()
    (home / "config.toml").write_text(COMMENTED)
    return home / "config.toml"


def child(*argv: str, home: Path, typed: str = "") -> subprocess.CompletedProcess[str]:
    code = "import sys\nfrom alipes.cli.commands.config import run\nsys.exit(run(sys.argv[1:]))"
    env = {"PYTHONPATH": str(Path(__file__).parents[3] / "src"), "ALIPES_HOME": str(home)}
    return subprocess.run(
        [sys.executable, "-c", code, *argv], env=env, input=typed, capture_output=True, text=True, check=True
    )


def test_path_prints_the_path_and_creates_nothing(config, home):
    assert config("path") == (0, f"{home}/config.toml\n", "")
    assert not home.exists()


def test_show_is_valid_toml_with_origins_and_without_secrets(config, written, home, monkeypatch):
    monkeypatch.setenv("GROQ_API_KEY", "gsk_canary_canary")
    monkeypatch.setenv("HTTPS_PROXY", "http://me:canary@proxy:1")
    (home / ".env").write_text("OPENAI_API_KEY=canary-canary\n")
    status, out, err = config("show")
    assert (status, err) == (0, "")
    assert "canary" not in out
    shown = tomllib.loads(out)
    assert shown["serve"]["port"] == 9000
    assert shown["providers"]["groq"]["key_env"] == "GROQ_API_KEY"
    assert f"port = 9000  # {written}:5\n" in out
    assert f'key_env = "OPENAI_API_KEY"  # known provider; set, {home}/.env:1\n' in out
    assert "anthropic (ANTHROPIC_API_KEY)" in out
    assert '# HTTPS_PROXY = "http://***@proxy:1", environment\n' in out
    assert "chmod 600" in out


def test_get_prints_only_the_value(config, written):
    assert config("get", "model") == (0, "groq/llama\n", "")
    assert config("get", "serve.port") == (0, "9000\n", "")
    assert config("get", "fallback") == (0, "[]\n", "")
    assert config("get", "providers.ollama.base_url") == (0, "http://127.0.0.1:11434/v1\n", "")
    status, out, _ = config("get", "serve")
    assert status == 0
    serve = {"host": "127.0.0.1", "port": 9000, "key_env": "ALIPES_API_KEY", "drain": 20.0, "profiles": []}
    assert tomllib.loads(out) == {"serve": serve}


def test_get_looks_into_tables(config, written):
    written.write_text("[providers.groq]\nbody = { a = { b = 3 } }\n")
    assert config("get", "providers.groq.body.a.b") == (0, "3\n", "")
    assert config("get", "providers.groq.body.z") == (0, "", "")


def test_an_unknown_key_is_reported_with_similar_ones(config, written):
    status, out, err = config("get", "serve.prot")
    assert (status, out) == (2, "")
    assert "Did you mean serve.port" in err
    assert config("why", "a b")[0] == 2


def test_why_prints_value_origin_and_meaning(config, written, monkeypatch):
    _, out, _ = config("why", "serve.port")
    assert out.splitlines()[:2] == ["serve.port = 9000", f"  from {written}:5"]
    assert "default 8742; variable ALIPES_SERVE_PORT" in out
    assert "  from default\n" in config("why", "max_steps")[1]
    assert "  from known provider\n" in config("why", "providers.openai.api")[1]
    monkeypatch.setenv("ALIPES_SERVE_PORT", "1234")
    _, out, _ = config("why", "serve.port")
    assert out.splitlines()[:3] == [
        "serve.port = 1234",
        "  from ALIPES_SERVE_PORT, environment",
        f"  overrides 9000 from {written}:5",
    ]
    assert "not set" in config("why", 'models."groq/x".window')[1]


def test_why_prints_where_a_secret_is_without_its_value(config, written, home):
    set_secret("GROQ_API_KEY", "gsk_canary")
    assert config("why", "GROQ_API_KEY") == (
        0,
        f"GROQ_API_KEY = ***\n  from {home}/.env:1\n  named by providers.groq.key_env\n",
        "",
    )
    assert config("get", "GROQ_API_KEY") == (0, "***\n", "")
    assert config("why", "XAI_API_KEY") == (0, "XAI_API_KEY is not set\n", "")


def test_set_keeps_every_comment(config, written):
    status, out, err = config("set", "serve.port", "9001")
    assert (status, err) == (0, "")
    assert out == f"serve.port = 9001\n  from {written}:5\n"
    assert written.read_text() == COMMENTED.replace("9000", "9001")
    config("set", "max_steps", "7")
    config("set", "fallback", "groq/a, xai/b")
    config("set", "providers.groq.body.temperature", "0.5")
    config("set", "providers.groq.headers.X-Title", "12")
    config("set", 'models."groq/llama".vision', "true")
    text = written.read_text()
    assert "# how I like it" in text
    assert "# not 8742" in text
    assert tomllib.loads(text) == {
        "model": "groq/llama",
        "max_steps": 7,
        "fallback": ["groq/a", "xai/b"],
        "serve": {"port": 9001},
        "providers": {"groq": {"body": {"temperature": 0.5}, "headers": {"X-Title": "12"}}},
        "models": {"groq/llama": {"vision": True}},
    }


def test_set_creates_a_private_home_and_file(config, home):
    assert config("set", "model", "groq/x")[0] == 0
    assert stat.S_IMODE(home.stat().st_mode) == 0o700
    assert stat.S_IMODE((home / "config.toml").stat().st_mode) == 0o600
    assert (home / "config.toml").read_text() == 'model = "groq/x"\n'


@pytest.mark.parametrize(
    ("key", "value", "said"),
    [
        ("serve.port", "99999", "serve.port = 99999 is out of range"),
        ("serve.port", "many", "must be a whole number"),
        ("serve.port", "-1", "out of range"),
        ("serve.prot", "1", "Did you mean port?"),
        ("serve", "1", "must be a table"),
        ("model", "gpt-5", "needs a provider prefix"),
        ("model", "nope/x", "has an unknown provider"),
        ("model.x", "1", "must be text"),
        ("fallback", '["groq/a", 3]', "must be text"),
        ("providers.new.api", "anthropic", "has no base_url"),
        ("providers.new.base_url", "localhost:1", "has no scheme"),
        ("providers.groq.key", "sk-canary-canary", "is a secret"),
        ("providers.groq.headers.Authorization", "Bearer canary", "contains a secret"),
        ("providers.groq.api", "openia-chat", "Did you mean openai-chat?"),
        ("a..b", "1", "is not a valid setting name"),
        ("ALIPES_MODEL", "groq/x", "config set model VALUE"),
        ("ALIPES_HOME", "/x", "set it in the environment"),
        ("HTTP_PROXY", "canary", "is not a URL"),
        ("GROQ_API_KEY", "", "must not be empty"),
        ("GROQ_API_KEY", "can\nary", "control characters"),
        ("model", "groq/\udcff", "control characters"),
    ],
)
def test_a_bad_value_leaves_the_files_unchanged(config, written, home, key, value, said):
    before = written.stat()
    status, out, err = config("set", key, value)
    assert (status, out) == (2, "")
    assert said in err
    assert "canary" not in err
    assert written.read_text() == COMMENTED
    assert written.stat().st_ino == before.st_ino
    assert not (home / ".env").exists()


def test_set_repairs_a_wrong_file_one_step_at_a_time(config, written):
    written.write_text("max_steps = 0\n[serve]\nport = 0\n")
    status, _, err = config("set", "serve.port", "1")
    assert status == 0
    assert f"{written}:1: max_steps = 0 is out of range" in err
    assert config("set", "max_steps", "1") == (0, f"max_steps = 1\n  from {written}:1\n", "")


def test_set_does_not_touch_a_file_that_is_not_toml(config, written):
    written.write_text("model = \n")
    status, _, err = config("set", "serve.port", "1")
    assert status == 2
    assert f"{written}:1: invalid TOML" in err
    assert written.read_text() == "model = \n"


def test_set_follows_a_link_and_keeps_the_mode(config, written, tmp_path):
    real = tmp_path / "dotfiles.toml"
    written.rename(real)
    real.chmod(0o640)
    written.symlink_to(real)
    assert config("set", "max_steps", "3")[0] == 0
    assert written.is_symlink()
    assert tomllib.loads(real.read_text())["max_steps"] == 3
    assert stat.S_IMODE(real.stat().st_mode) == 0o640


def test_a_file_that_cannot_be_replaced_is_reported_and_unchanged(config, written, home):
    (home / ".config.toml.new").mkdir()
    status, _, err = config("set", "max_steps", "3")
    assert status == 2
    assert "cannot be written" in err
    assert written.read_text() == COMMENTED


def test_secrets_are_saved_in_a_private_env_file(config, home):
    home.mkdir()
    env = home / ".env"
    env.write_text("# keys\nexport A=1 # old\nB='two'\n")
    env.chmod(0o644)
    assert config("set", "GROQ_API_KEY", "gsk_abcdef")[0] == 0
    assert config("set", "A", "with 'both\" quotes\\")[0] == 0
    piped = child("set", "MINE_KEY", "-", home=home, typed="from-a-pipe\n")
    assert piped.stdout == f"MINE_KEY saved in {env}\n"
    assert stat.S_IMODE(env.stat().st_mode) == 0o600
    assert env.read_text().startswith("# keys\n")
    assert {name: line.value for name, line in parse_env(env.read_text(), env).items()} == {
        "A": "with 'both\" quotes\\",
        "B": "two",
        "GROQ_API_KEY": "gsk_abcdef",
        "MINE_KEY": "from-a-pipe",
    }
    assert not (home / "config.toml").exists()


def test_unset_removes_a_value_and_keeps_every_comment(config, written):
    status, out, err = config("unset", "serve.port")
    assert (status, err) == (0, "")
    assert out == f"serve.port is no longer set, {written}:5\nserve.port = 8742\n  from default\n"
    assert tomllib.loads(written.read_text()) == {"model": "groq/llama", "serve": {}}
    assert "# how I like it" in written.read_text() and "# the fast one" in written.read_text()
    assert config("unset", "serve.port") == (0, f"serve.port is not set in {written}\n", "")


@pytest.mark.parametrize("key", ["providers.mine", 'models."groq/llama"', "serve", "servee", "providers.groq.key"])
def test_unset_removes_tables_and_unknown_names(config, written, key):
    written.write_text(
        "max_steps = 3 # three\n[serve]\nport = 3\n[servee]\na = 1\n[providers.groq]\nkey = 'sk-canary-canary'\n"
        "[providers.mine]\nbase_url = 'http://h/v1'\n[models.\"groq/llama\"]\nvision = true\n"
    )
    status, out, err = config("unset", key)
    assert status == 0 and out.startswith(f"{key} is no longer set, {written}:") and "canary" not in out + err
    assert not has_value(tomllib.loads(written.read_text()), split_key(key))
    assert written.read_text().startswith("max_steps = 3 # three\n")


def test_unset_does_not_remove_what_other_settings_need(config, written):
    written.write_text('model = "mine/x"\n[providers.mine]\nbase_url = "http://h/v1"\n')
    before = written.read_text()
    for key, said in (("providers.mine", "has an unknown provider"), ("providers.mine.base_url", "no base_url")):
        status, _, err = config("unset", key)
        assert status == 2 and said in err and written.read_text() == before
    assert config("unset", "serve.prot")[0] == 2


def test_unset_removes_a_secret_from_the_env_file(config, home):
    home.mkdir()
    (home / ".env").write_text("# keys\nA=1\nGROQ_API_KEY=gsk_canary\nB=2\n")
    status, out, err = config("unset", "GROQ_API_KEY")
    assert (status, out, err) == (0, f"GROQ_API_KEY is no longer set, {home}/.env:3\n", "")
    assert (home / ".env").read_text() == "# keys\nA=1\nB=2\n"
    assert config("unset", "GROQ_API_KEY") == (0, f"GROQ_API_KEY is not set in {home}/.env\n", "")


def test_settings_and_secrets_are_changed_together_or_not_at_all(home):
    ways = {("model",): "mine/x", ("providers", "mine", "base_url"): "http://h/v1"}
    both = {**ways, ("providers", "mine", "key_env"): "MINE_KEY"}
    assert change(both, {"MINE_KEY": "abc-def"}, home=home, environ={}) == []
    assert load_settings(home, {}).providers["mine"].key.reveal() == "abc-def"
    before = (home / "config.toml").read_text(), (home / ".env").read_text()
    (home / ".config.toml.new").mkdir()
    with pytest.raises(ConfigError, match="cannot be written"):
        change({("max_steps",): "3"}, {"MINE_KEY": "other", "NEW": "1"}, home=home, environ={})
    with pytest.raises(ConfigError, match="out of range"):
        change({("max_steps",): "0"}, {"MINE_KEY": "other"}, home=home, environ={})
    assert ((home / "config.toml").read_text(), (home / ".env").read_text()) == before
    (home / ".env").unlink()
    with pytest.raises(ConfigError):
        change({("max_steps",): "3"}, {"NEW": "1"}, home=home, environ={})
    assert not (home / ".env").exists()


@pytest.mark.parametrize(
    "argv",
    [
        [],
        ["get"],
        ["why"],
        ["set"],
        ["set", "x"],
        ["unset"],
        ["unset", "a", "b"],
        ["show", "x"],
        ["path", "x"],
        ["get", "a", "b"],
        ["nope"],
        ["show", "-x"],
    ],
)
def test_wrong_usage_exits_with_status_2_and_a_hint(config, argv):
    status, out, err = config(*argv)
    assert (status, out) == (2, "")
    assert "Try `alipes config --help`." in err


def test_help_prints_to_standard_output(config):
    status, out, err = config("--help")
    assert (status, err) == (0, "")
    assert "alipes config why KEY" in out


@pytest.mark.parametrize("action", [["show"], ["get", "model"], ["why", "model"]])
def test_wrong_settings_exit_with_status_2(config, written, action):
    written.write_text("[serve]\nport = 0\n")
    status, out, err = config(*action)
    assert (status, out) == (2, "")
    assert f"{written}:2: serve.port = 0" in err


NAMES = st.sampled_from(["x", "y z", "headers", "é", '"', "a.b", ""])
LEAVES = (
    st.integers(-5, 5) | st.booleans() | st.text(st.characters(codec="utf-8", exclude_categories=["Cc"]), max_size=5)
)
BODIES = st.recursive(LEAVES, lambda inner: st.lists(inner, max_size=2) | st.dictionaries(NAMES, inner, max_size=3))


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(body=st.dictionaries(NAMES, BODIES, max_size=3), way=st.lists(NAMES, min_size=1, max_size=3))
def test_set_changes_one_value_and_nothing_else(tmp_path, body, way):
    file = tmp_path / "config.toml"
    file.write_text("# top\n" + tomlkit.dumps({"providers": {"groq": {"body": body}}}) + "\n[serve] # s\nport = 3\n")
    before = file.read_text()
    try:
        change({("providers", "groq", "body", *way): "7"}, home=tmp_path, environ={})
    except ConfigError:
        assert file.read_text() == before
        return
    expected = tomllib.loads(before)
    inner = expected["providers"]["groq"]["body"]
    for name in way[:-1]:
        inner = inner.setdefault(name, {})
    inner[way[-1]] = 7
    assert tomllib.loads(file.read_text()) == expected
    assert file.read_text().startswith("# top\n")
    assert "# s\n" in file.read_text()


@pytest.mark.deadline(60)
def test_two_processes_that_set_at_once_lose_nothing(home):
    src = Path(__file__).parents[3] / "src"
    code = (
        "import sys\nfrom alipes.cli.commands.config import run\n"
        "for n in range(10): assert run(['set', sys.argv[1], str(n + 1)]) == 0\n"
    )
    env = {"PYTHONPATH": str(src), "ALIPES_HOME": str(home)}
    keys = ("max_steps", "serve.port", "embedded.threads")
    children = [subprocess.Popen([sys.executable, "-c", code, key], env=env, stdout=subprocess.DEVNULL) for key in keys]
    assert [child.wait() for child in children] == [0, 0, 0]
    loaded = load_settings(home, {})
    assert (loaded.max_steps, loaded.serve.port, loaded.embedded.threads) == (10, 10, 10)
