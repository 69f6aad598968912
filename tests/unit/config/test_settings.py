"""Settings: what a home and its variables mean, and what is said when they make no sense."""

import os
import stat
import subprocess
import sys
from pathlib import Path

import pytest
from msgspec import structs

from alipes.config.known_providers import KEYED, KNOWN, LOCAL
from alipes.config.loader import load_settings
from alipes.config.paths import Paths, find_home, make_private, make_private_tree
from alipes.config.settings import EmbeddedConfig, GatewayConfig, ServeConfig, Settings
from alipes.kernel.errors import ConfigError
from alipes.kernel.models import Endpoint, ModelFacts, Secret
from alipes.platforms.discord.settings import DiscordConfig
from alipes.platforms.telegram.settings import TelegramConfig
from alipes.providers.registry import catalog


@pytest.fixture
def home(tmp_path):
    return tmp_path


def write(home: Path, text: str, env: str = "") -> Path:
    (home / "config.toml").write_text(text)
    (home / ".env").write_text(env)
    (home / ".env").chmod(0o600)
    return home


def problems(home: Path, text: str, env: str = "", **environ: str) -> str:
    with pytest.raises(ConfigError) as caught:
        load_settings(write(home, text, env), environ)
    return str(caught.value).replace(f"{home}/", "")


def test_an_empty_home_gives_the_defaults(home):
    settings = load_settings(home / "nowhere", {})
    assert settings == Settings(home=home / "nowhere", providers=dict(KNOWN))
    assert not (home / "nowhere").exists()


def test_the_words_of_the_readme_are_understood(home):
    text = """
        model = "mine/some-model"
        fallback = ["mine/x", "groq/y"]
        effort = "high"
        max_steps = 7
        [providers.mine]
        api = "anthropic"
        base_url = "http://127.0.0.1:9100/"
        key_env = "MINE_API_KEY"
        headers = { X-Title = "alipes" }
        body = { temperature = 0.5, nested = { a = [1, "b"] } }
        stall = 5
        connect = 1.5
        [serve]
        host = "::1"
        port = 9000
        key_env = "GATE_KEY"
        drain = 5
        [telegram]
        token_env = "BOT"
        base_url = "http://127.0.0.1:8081"
        allow = [12345, "someone"]
        busy = "queue"
        progress = "full"
        group = "all"
        per_user = true
        mode = "webhook"
        webhook_url = "https://me.example/telegram"
        [embedded]
        threads = 2
        context = 4096
        [models."mine/some-model"]
        window = 1000
        vision = true
        price_input = 3
        [discord]
        allow = ["someone"]
        [gateway]
        pairing = false
        expiry = 600
        tries = 3
        stt_command = "whisper -f"
        [mcp.servers.time]
        command = "mcp-server-time"
        args = ["--local-timezone", "Europe/Vienna"]
        [auxiliary.titles]
        model = "mine/small"
    """
    keys = {"MINE_API_KEY": "key-of-mine", "GATE_KEY": "key-of-gate", "BOT": "12:ab", "DISCORD_BOT_TOKEN": "34:cd"}
    settings = load_settings(write(home, text), keys)
    assert settings.model == "mine/some-model"
    assert settings.fallback == ("mine/x", "groq/y")
    assert (settings.effort, settings.max_steps, settings.max_tokens) == ("high", 7, 8192)
    assert settings.providers["mine"] == Endpoint(
        name="mine",
        api="anthropic",
        base_url="http://127.0.0.1:9100",
        key=Secret("key-of-mine"),
        key_env="MINE_API_KEY",
        headers={"X-Title": "alipes"},
        body={"temperature": 0.5, "nested": {"a": [1, "b"]}},
        stall=5.0,
        connect=1.5,
    )
    assert settings.serve == ServeConfig("::1", 9000, "GATE_KEY", 5.0, Secret("key-of-gate"))
    assert settings.messengers.telegram == TelegramConfig(
        token_env="BOT",
        base_url="http://127.0.0.1:8081",
        allow=("12345", "someone"),
        busy="queue",
        progress="full",
        group="all",
        per_user=True,
        mode="webhook",
        webhook_url="https://me.example/telegram",
        token=Secret("12:ab"),
    )
    assert settings.messengers.discord == DiscordConfig(allow=("someone",), token=Secret("34:cd"))
    assert settings.gateway == GatewayConfig(False, 600.0, 3, "whisper -f")
    assert settings.embedded == EmbeddedConfig(threads=2, context=4096)
    assert settings.models == {"mine/some-model": ModelFacts(window=1000, vision=True, price_input=3.0)}
    assert next(iter(settings.providers)) == "mine"


def test_a_known_provider_needs_only_its_key_and_any_field_can_be_overridden(home):
    settings = load_settings(write(home, '[providers.openai]\napi = "openai-chat"\n'), {"OPENAI_API_KEY": "k-openai"})
    assert settings.providers["openai"].api == "openai-chat"
    assert settings.providers["openai"].base_url == KNOWN["openai"].base_url
    assert settings.providers["openai"].key == Secret("k-openai")
    assert not settings.providers["anthropic"].key
    assert settings.providers["anthropic"].key_env == "ANTHROPIC_API_KEY"
    assert set(KEYED) | set(LOCAL) | {"embedded", "scripted"} == set(KNOWN)


@pytest.mark.parametrize("name", KEYED)
def test_the_default_model_of_a_known_provider_is_in_the_catalog(name):
    assert f"{name}/{KNOWN[name].model}" in catalog()


def test_a_provider_alone_means_its_default_model(home):
    settings = load_settings(write(home, 'model = "anthropic"\nfallback = ["embedded", "scripted"]'), {})
    assert settings.model == f"anthropic/{KNOWN['anthropic'].model}"
    assert settings.fallback == ("embedded", "scripted")
    assert "write ollama/MODEL" in problems(home, 'model = "ollama"')
    named = load_settings(write(home, 'model = "ollama"\n[providers.ollama]\nmodel = "qwen3"'), {})
    assert named.model == "ollama/qwen3"


def test_the_environment_wins_over_env_file_and_both_over_the_file(home):
    write(home, 'model = "groq/file"\n[serve]\nport = 1\n', "GROQ_API_KEY=from-file\nALIPES_MODEL=groq/env-file\n")
    assert load_settings(home, {}).model == "groq/env-file"
    assert load_settings(home, {}).providers["groq"].key == Secret("from-file")
    settings = load_settings(
        home,
        {
            "ALIPES_MODEL": "groq/shell",
            "GROQ_API_KEY": "from-shell",
            "ALIPES_SERVE_PORT": "2",
            "ALIPES_FALLBACK": "xai/a, xai/b",
        },
    )
    assert settings.model == "groq/shell"
    assert settings.providers["groq"].key == Secret("from-shell")
    assert settings.serve.port == 2
    assert settings.fallback == ("xai/a", "xai/b")
    assert load_settings(home, {"ALIPES_MODEL": "", "GROQ_API_KEY": ""}).providers["groq"].key == Secret("from-file")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('modle = "a/b"', "config.toml:1: unknown setting modle. Did you mean model?"),
        ("\n\n[serv]\nport = 1", "config.toml:3: unknown table serv. Did you mean serve?"),
        ("[serve]\nprot = 1", "config.toml:2: unknown setting serve.prot. Did you mean port?"),
        ("port = 1", "config.toml:1: unknown setting port. Did you mean serve.port?"),
        ("[serve]\nmodel = 'x'", "config.toml:2: model belongs at the top"),
        ("zzz = 1", "config.toml:1: unknown setting zzz; valid here: model,"),
        ("[serve]\nport = 0", "config.toml:2: serve.port = 0 is out of range"),
        ("[serve]\nport = 65536", "serve.port = 65536 is out of range"),
        ('[serve]\nport = "80"', 'serve.port = "80" must be a whole number from 1 to 65535, not text'),
        ("[serve]\nport = true", "must be a whole number"),
        ("[serve]\nport = 80.5", "must be a whole number"),
        ('[serve]\nhost = "http://x"', "must be a host without a port"),
        ('[serve]\nhost = "x:80"', "must be a host without a port"),
        ("serve = 3", "config.toml:1: serve = 3 must be a table: write [serve]."),
        ("discord = 3", "config.toml:1: discord = 3 must be a table"),
        ("slack = 3", "config.toml:1: slack = 3 must be a table"),
        ("[[serve]]\nport = 1", "config.toml:1: serve = "),
        ("model = 3", "model = 3 must be text in quotes, not a number"),
        ("model = 2026-01-01", "not a date or time"),
        ('model = "gpt-5"', "needs a provider prefix: write it as provider/model, for instance openai/gpt-5"),
        ('model = "claude-opus-4-5"', "for instance anthropic/claude-opus-4-5"),
        ('model = "qwen3:8b"', "for instance ollama/qwen3:8b"),
        ('model = "antropic/x"', "has an unknown provider"),
        ('model = "antropic/x"', "Did you mean anthropic?"),
        ('model = "http://x/v1"', "is a URL, which belongs in a provider's base_url"),
        ('model = " groq/x"', "without spaces around it"),
        ('model = "groq/"', "must be the name of a model"),
        ('model = "groq/a\\nb"', "control characters"),
        ('fallback = "groq/x"', "must be a list like"),
        ('fallback = [\n"groq/x",\n"nope/y",\n]', 'config.toml:3: fallback = "nope/y" has an unknown provider'),
        ('fallback = [\n"groq/x",\n3,\n]', "config.toml:3: fallback = "),
        ('fallback = ["groq/x", "groq/x"]', "lists a model twice"),
        (
            'effort = "hgih"',
            'must be one of "", "off", "minimal", "low", "medium", "high", "xhigh", "max". Did you mean high?',
        ),
        ("max_steps = -1", "max_steps = -1 is out of range"),
        ('log_level = "INFO"', "Did you mean info?"),
        ("[embedded]\ngguf = '/nowhere.gguf'", 'config.toml:2: embedded.gguf = "/nowhere.gguf" is not a file'),
        ("workdir = '/nowhere'", "is not a directory"),
        ("[providers.mine]\nkey_env = 'X'", "config.toml:1: [providers.mine] has no base_url"),
        ("[providers.mine]\nbase_url = 'gpt-4'", 'config.toml:2: providers.mine.base_url = "gpt-4" looks like a model'),
        ("[providers.mine]\nbase_url = 'localhost:1'", "has no scheme: write http://localhost:1"),
        ("[providers.groq]\napi = 'openai'", 'must be one of "openai-chat"'),
        ("[providers.groq]\nstall = 0", "is out of range"),
        ("[providers.groq]\nstall = nan", "is out of range"),
        ("[providers.groq]\nheaders = { 'a b' = 'x' }", "cannot be a header's name"),
        ("[providers.groq]\nheaders = { X-A = 1 }", "plain ASCII text"),
        ("[providers.groq]\nbody = { when = 2026-01-01 }", "a date or time in it"),
        ("[providers.groq]\nbody = { x = inf }", "infinite"),
        ("[providers.groq]\nbody = { x = 99999999999999999999999 }", "JSON cannot hold"),
        ("[providers.embedded]\nstall = 1", "is built in"),
        ("[providers.'a/b']\nbase_url = 'http://x'", "not a valid provider name"),
        ("[providers]\nmine = 'x'", "must be a table"),
        ("[providers]\nmine = 3", "config.toml:2: providers.mine = 3 must be a table"),
        ("[[providers.mine]]\nstall = 3", "must be a table"),
        ("[providers.groq]\nbase_url = ''", "is empty: write http://HOST:PORT/v1"),
        ("[models.'gpt']\nwindow = 1", 'write [models."provider/gpt"]'),
        ("[models.'nope/gpt']\nwindow = 1", "has an unknown provider"),
        ("[models.'groq/x']\nwindow = '1'", "config.toml:2:"),
        ("[models.'groq/x']\nvision = 1", "must be true or false"),
        ("[telegram]\nbussy = 'x'", "Did you mean busy?"),
        ("[telegram]\nallow = 'me'", "must be a list of user ids"),
        ("[telegram]\nmode = 'webhook'", 'config.toml:2: telegram.mode = "webhook" needs telegram.webhook_url'),
        ("[telegram]\nwebhook_url = 'http://x/y'", "must begin with https://"),
        ("[telegram]\nlater = true", "unknown setting"),
        ("[discord]\nmode = 'poll'", "config.toml:2: unknown setting discord.mode"),
        ("[discord]\nprogress = 'ful'", "Did you mean full?"),
        ("[gateway]\nstt_url = 'example.com'", "has no scheme"),
        ("[gateway]\ntries = 0", "give a whole number from 1 to 1000"),
        ("[egress]\nallow = 'pypi.org'", "must be a list like"),
        ("[egress]\nallow = ['https://pypi.org']", "must be a host"),
        ("[egress]\nallow = ['*']", "must be a host"),
        ("[egress]\nallow = ['a.*.example']", "must be a host"),
        ("[egress]\nallow = ['x.example:99999']", "has a port out of range"),
        ("[egress]\ndefault = 'alow'", "Did you mean allow?"),
        ("silence = -1", "config.toml:1: silence = -1 is out of range"),
        ("[sandbox]\ngrants = ['ssh-agnet']", "'ssh-agnet', which is unknown: ssh-agent, docker, browser are known"),
        ("[sandbox.projects.'~/x']\ngrants = ['all']", "'all', which is unknown"),
        ("[sandbox.projects.'']\nnetwork = 'open'", 'sandbox.projects.""] must name a directory'),
        ("[sandbox.projects.'work']\nnetwork = 'open'", "must name a directory by an absolute path"),
        ("[sandbox.projects.'/']\nnetwork = 'open'", "it would hold for every project"),
        ("[sandbox.projects.'~/']\nnetwork = 'open'", "names / or a directory that contains your home"),
    ],
)
def test_a_wrong_setting_is_named_with_its_line_and_its_fix(home, text, said):
    assert said in problems(home, text)


def test_hosts_for_egress_are_written_in_one_form(home):
    given = ["PyPI.org.", "*.Example.com:8443", "[2606:4700::1]:443", "2606:4700::1", "10.0.0.1", "registries"]
    (home / "config.toml").write_text(f"[egress]\nallow = {given}\ndefault = 'deny'\n")
    settings = load_settings(home, {})
    assert settings.egress.default == "deny" and settings.egress.allow == (
        *("pypi.org", "*.example.com:8443", "[2606:4700::1]:443", "2606:4700::1", "10.0.0.1", "registries"),
    )


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("model = gpt-4", 1),
        ("\n\nmodel = ", 3),
        ("[serve\nport=1", 1),
        ("a = 1\na = 2", 2),
        ('x = "', 1),
        ("\n[a]\n[a]", 3),
    ],
)
def test_a_broken_file_is_named_with_its_line(home, text, line):
    said = problems(home, text)
    assert said.startswith(f"config.toml:{line}: invalid TOML")


def test_every_problem_is_reported_at_once_in_the_order_of_the_file(home):
    text = 'fallback = ["no/x"]\n[serve]\nport = 0\n[providers.mine]\nbase_url = "x"\nkey = "sk-secret-secret"\n'
    said = problems(home, text, ALIPES_MAX_STEPS="many", HTTP_PROXY="x").splitlines()
    assert [line.partition(": ")[0] for line in said] == [
        *("environment", "environment", "config.toml:1", "config.toml:3", "config.toml:5", "config.toml:6")
    ]


def test_both_broken_files_are_reported_at_once(home):
    said = problems(home, "model = ", "no equals sign\n")
    assert ".env:1:" in said
    assert "config.toml:1:" in said


@pytest.mark.parametrize(
    "text",
    [
        '[providers.mine]\nbase_url = "http://x"\nkey = "sk-canary-canary"',
        '[providers.mine]\nbase_url = "http://x"\napi_key = "sk-canary-canary"',
        '[providers.mine]\nbase_url = "http://x"\nkey_env = "sk-canary-canary"',
        '[providers.mine]\nbase_url = "http://me:canary@x"',
        '[providers.mine]\nbase_url = "sk-canary-canary"',
        '[providers.mine]\nbase_url = "http://x"\nheaders = { Authorization = "Bearer canary" }',
        '[providers.mine]\nbase_url = "http://x"\nheaders = { X-Other = "sk-canary-canary" }',
        '[providers.mine]\nbase_url = "http://x/?key=canary"',
        'model = "sk-canary-canary"',
        'api_key = "sk-canary-canary"',
        '"sk-canary-canary" = 1',
        '[telegram]\ntoken = "12345678:canarycanarycanarycanarycanary"',
        '[discord]\ntoken = "canary"',
        '[email]\npassword = "canary"',
        '[serve]\nkey = "canary"',
        "key = sk-canary-canary",
    ],
)
def test_a_secret_in_the_file_is_refused_and_not_shown(home, text):
    said = problems(home, text)
    assert "canary" not in said
    assert "config.toml:" in said


def test_a_literal_key_is_moved_by_advice_to_the_env_file(home):
    said = problems(home, '[providers.mine]\nbase_url = "http://x"\nkey = "sk-1234567890"')
    assert "move it to .env" in said
    assert 'write key_env = "MINE_API_KEY"' in said
    assert 'token_env = "TELEGRAM_BOT_TOKEN"' in problems(home, '[telegram]\ntoken = "x"')
    assert 'key_env = "ALIPES_API_KEY"' in problems(home, '[serve]\nkey = "x"')


def test_a_header_takes_its_secret_from_a_variable(home):
    text = '[providers.groq]\nheaders = { Helicone-Auth = "Bearer ${HELI}" }'
    settings = load_settings(write(home, text), {"HELI": "heli-secret"})
    assert settings.providers["groq"].headers == {"Helicone-Auth": "Bearer heli-secret"}
    assert "heli-secret" in settings.secrets()
    assert "needs the variable HELI, which is not set" in problems(home, text)


@pytest.mark.parametrize("key", ['"sk-quoted-key"', "sk-two words", "sk-é", "sk-a\nb"])
def test_a_key_that_cannot_be_sent_is_reported_unless_nobody_asked_for_it(home, key):
    said = problems(home, '[providers.groq]\nmodel = "x"', GROQ_API_KEY=key)
    assert "environment: GROQ_API_KEY" in said
    assert "sk-" not in said
    settings = load_settings(write(home, ""), {"GROQ_API_KEY": key})
    assert not settings.providers["groq"].key
    assert "GROQ_API_KEY is not used" in settings.notes[0]


def test_a_broken_key_of_a_room_that_is_not_used_is_noted(home):
    settings = load_settings(home, {"ALIPES_API_KEY": "'quoted'"})
    assert not settings.serve.key
    assert "ALIPES_API_KEY is not used" in settings.notes[0]
    assert "ALIPES_API_KEY" in problems(home, "[serve]\nport = 1", ALIPES_API_KEY="'quoted'")


def test_a_line_break_after_a_key_is_harmless(home):
    assert load_settings(home, {"GROQ_API_KEY": "gsk_abcdef\n"}).providers["groq"].key == Secret("gsk_abcdef")


def test_secrets_are_listed_for_masking_and_never_printed(home):
    env = "GROQ_API_KEY=groq-secret\nOTHER=other-secret\nSHORT=abc\nALIPES_MODEL=groq/x\nNO_PROXY=localhost\n"
    environ = {"GITHUB_TOKEN": "hub-secret", "HTTP_PROXY": "http://me:proxy-secret@host:1", "PATH": "/usr/bin:/bin"}
    settings = load_settings(write(home, "", env), environ)
    assert set(settings.secrets()) == {
        *("groq-secret", "other-secret", "hub-secret", "proxy-secret", "me:proxy-secret")
    }
    assert "-secret" not in repr(settings)


def test_a_readable_env_file_and_a_misspelt_variable_are_noted(home):
    write(home, "", "X=y\n")
    (home / ".env").chmod(0o644)
    given = {"ALIPES_MODLE": "groq/x", "ALIPES_HOME": str(home), "ALIPES_API_KEY": "k", "ALIPES_CHILD": "12:3"}
    notes = load_settings(home, given).notes
    assert not any("ALIPES_CHILD" in note for note in notes), "alipes sets it for its own processes"
    assert any("ALIPES_MODLE" in note and "Did you mean ALIPES_MODEL?" in note for note in notes)
    assert any("chmod 600" in note for note in notes)
    assert len(notes) == 2


def test_a_wrong_override_names_its_variable(home):
    assert 'environment: ALIPES_SERVE_PORT = "x" must be' in problems(home, "", ALIPES_SERVE_PORT="x")
    assert 'environment: ALIPES_MODEL = "nope/x" has an unknown provider' in problems(home, "", ALIPES_MODEL="nope/x")
    assert '.env:2: ALIPES_EFFORT = "x" must be' in problems(home, "", "\nALIPES_EFFORT=x")


def test_paths_are_found_from_the_home(home):
    (home / "tiny.gguf").write_bytes(b"GGUF")
    (home / "work").mkdir()
    settings = load_settings(write(home, 'workdir = "work"\n[embedded]\ngguf = "tiny.gguf"'), {})
    assert settings.embedded.gguf == str(home / "tiny.gguf")
    assert settings.workdir == str(home / "work")


@pytest.mark.parametrize("name", ["config.toml", ".env"])
def test_a_file_that_is_not_text_is_reported(home, name):
    file = home / name
    file.write_bytes(b"ok = 1\n\xff\xfe")
    with pytest.raises(ConfigError, match=rf"{name}:2: not UTF-8"):
        load_settings(home, {})
    file.write_bytes(b"#" * 1_000_001)
    with pytest.raises(ConfigError, match="are allowed"):
        load_settings(home, {})
    file.unlink()
    os.mkfifo(file)
    with pytest.raises(ConfigError, match="is not a regular file"):
        load_settings(home, {})


@pytest.mark.parametrize("name", ["config.toml", ".env"])
def test_a_link_to_nothing_is_an_error(home, name):
    (home / name).symlink_to("gone")
    with pytest.raises(ConfigError, match=f"{name} is a link to gone, which does not exist"):
        load_settings(home, environ={})


def test_a_file_with_a_byte_order_mark_and_dos_lines_is_read(home):
    (home / "config.toml").write_bytes(b'\xef\xbb\xbfmodel = "groq/x"\r\n[serve]\r\nport = 9\r\n')
    (home / ".env").write_bytes(b"\xef\xbb\xbfGROQ_API_KEY=abcdefgh\r\n")
    settings = load_settings(home, {})
    assert (settings.model, settings.serve.port) == ("groq/x", 9)
    assert settings.providers["groq"].key == Secret("abcdefgh")


def test_a_deeply_nested_file_is_refused(home):
    assert "config.toml: invalid TOML" in problems(home, "x = " + "[" * 5000 + "]" * 5000)
    assert "unknown setting" in problems(home, "x = " + "[" * 300 + "]" * 300)


def test_tls_trusts_the_file_of_the_setting_else_of_the_variable(home, monkeypatch):
    monkeypatch.chdir(home)
    (home / "ours.pem").touch()
    (home / "theirs.pem").touch()
    assert load_settings(home, {}).ca_file == ""
    assert load_settings(home, {"SSL_CERT_FILE": "theirs.pem"}).ca_file == str(home / "theirs.pem")
    assert load_settings(home, {"ALIPES_CA_FILE": "ours.pem", "SSL_CERT_FILE": "/nowhere"}).ca_file == str(
        home / "ours.pem"
    )
    write(home, 'ca_file = "ours.pem"')
    assert load_settings(home, {"SSL_CERT_FILE": "theirs.pem"}).ca_file == str(home / "ours.pem")
    assert problems(home, 'ca_file = "gone.pem"') == (
        'config.toml:1: ca_file = "gone.pem" is not a file: create it, or correct the path.'
    )
    assert problems(home, "", SSL_CERT_FILE="/nowhere").startswith('environment: SSL_CERT_FILE = "/nowhere" is not')


def test_prices_for_long_calls_can_be_configured(home):
    write(home, '[models."groq/x"]\nlong_from = 9\nlong_input = 2\nlong_output = 1.5\n')
    seen = load_settings(home, {}).models["groq/x"]
    assert seen == ModelFacts(long_from=9, long_input=2.0, long_output=1.5)


def test_a_llama_server_is_asked_to_close_as_it_does_anyway(home):
    assert load_settings(home, {}).providers["llamacpp"].headers == {"connection": "close"}


def test_the_home_is_where_the_variable_says(home, monkeypatch):
    monkeypatch.chdir(home)
    assert find_home({"ALIPES_HOME": "sub/dir"}) == home / "sub" / "dir"
    assert find_home({}) == Path("~/.alipes").expanduser()
    assert find_home({"ALIPES_HOME": "~/x"}) == Path("~/x").expanduser()
    with pytest.raises(ConfigError):
        find_home({"ALIPES_HOME": "~nobody-of-that-name/x"})
    with pytest.raises(ConfigError):
        find_home({"ALIPES_HOME": "a\nb"})


def test_the_home_is_made_for_us_alone(home):
    paths = Paths(home / "deep" / "home").make()
    for folder in (paths.home, paths.run, paths.logs, paths.spill):
        assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    assert paths.make() == paths
    assert paths.log.parent == paths.logs


def test_an_unusable_home_is_reported(home):
    (home / "file").write_text("")
    for bad in (home / "file", home / "file" / "below", Path("/proc/alipes")):
        with pytest.raises(ConfigError, match="Set ALIPES_HOME"):
            make_private(bad)
    with pytest.raises(ConfigError, match="Set ALIPES_HOME"):
        make_private(Path("/proc/self"))


def test_the_defaults_of_the_values_are_those_of_the_keys(home):
    loaded = load_settings(home, {})
    for part in ("embedded", "terminal", "serve", "messengers", "gateway", "api", "spend", "images", "code"):
        assert getattr(loaded, part) == type(getattr(loaded, part))()
    assert structs.replace(loaded, providers={}) == Settings(home=home)


def test_loading_settings_is_cheap_and_leaves_the_editor_out(home):
    write(home, 'model = "mine/x"\n[providers.mine]\nbase_url = "http://127.0.0.1:1/v1"\n')
    code = (
        "import asyncio, msgspec, sys, pathlib\n"
        "from alipes.config.loader import load_settings\n"
        "load_settings(pathlib.Path(sys.argv[1]), {})\n"
        "heavy = {'tomlkit', 'difflib', 'argparse', 'httpx2', 'ipaddress', 'urllib.request', 'email', 'subprocess'}\n"
        "print(sorted(heavy & set(sys.modules) - before))\n"
    ).replace("from alipes", "before = set(sys.modules)\nfrom alipes", 1)
    src = Path(__file__).parents[3] / "src"
    done = subprocess.run(
        [sys.executable, "-c", code, str(home)],
        env={"PYTHONPATH": str(src)},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout == "[]\n"


@pytest.mark.parametrize(
    ("text", "variables", "note"),
    [
        ("", {"SLACK_BOT_TOKEN": "xoxb-1"}, "slack is not served: also set SLACK_APP_TOKEN."),
        (
            '[matrix]\nuser = "@me:host"',
            {},
            "matrix is not served: also set matrix.base_url, MATRIX_TOKEN or MATRIX_PASSWORD.",
        ),
        ('[email]\naddress = "me@host"\nimap_host = "host"', {}, "email is not served: also set EMAIL_PASSWORD."),
    ],
)
def test_a_messenger_that_is_half_set_up_is_shown_what_it_lacks(home, text, variables, note):
    settings = load_settings(write(home, text), variables)
    assert note in settings.notes and settings.messengers.configured == {}


def test_messengers_that_nobody_set_up_are_not_spoken_of(home):
    assert load_settings(home, {}).notes == ()
    whole = load_settings(home, {"SLACK_BOT_TOKEN": "xoxb-1", "SLACK_APP_TOKEN": "xapp-1"})
    assert whole.notes == () and list(whole.messengers.configured) == ["slack"]


def test_a_password_that_a_person_chose_may_have_blanks_and_any_letters(home):
    text = '[email]\naddress = "me@host"\nimap_host = "host"'
    settings = load_settings(write(home, text), {"EMAIL_PASSWORD": "zwölf rote Äpfel"})
    assert (
        settings.messengers.email.password == Secret("zwölf rote Äpfel") and "email" in settings.messengers.configured
    )
    with pytest.raises(ConfigError, match="SLACK_BOT_TOKEN"):
        load_settings(
            write(home, '[slack]\nbusy = "queue"'), {"SLACK_BOT_TOKEN": "xoxb 1", "SLACK_APP_TOKEN": "xapp-1"}
        )


def test_folders_above_a_private_folder_are_private_too(tmp_path):
    make_private_tree(tmp_path / "home" / "sandbox" / "state")
    for folder in ("home", "home/sandbox", "home/sandbox/state"):
        assert (tmp_path / folder).stat().st_mode & 0o777 == 0o700


def test_a_provider_may_have_several_keys_and_a_rule_for_limits(home):
    text = """
        [providers.mine]
        base_url = "http://127.0.0.1:9/v1"
        key_env = ["FIRST", "MISSING", "SECOND"]
        on_limit = "wait"
        """
    endpoint = load_settings(write(home, text), {"FIRST": "one", "SECOND": "two"}).providers["mine"]
    assert (endpoint.key_env, endpoint.key.reveal(), endpoint.on_limit) == ("FIRST", "one", "wait")
    assert [(each.variable, each.key.reveal()) for each in endpoint.keys] == [("FIRST", "one"), ("SECOND", "two")]
    single = load_settings(write(home, text), {"SECOND": "two"}).providers["mine"]
    assert (single.key_env, single.key.reveal(), single.keys) == ("SECOND", "two", ())
    none = load_settings(write(home, text), {}).providers["mine"]
    assert (none.key_env, bool(none.key)) == ("FIRST", False)
