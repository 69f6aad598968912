"""The table `[web]`."""

import pytest

from alipes.config.loader import load_settings
from alipes.kernel.errors import ConfigError


def load(home, text, **environ):
    (home / "config.toml").write_text(text)
    return load_settings(home, {"HOME": str(home), **environ})


def test_keys_are_read_from_their_variables_and_hidden(tmp_path):
    settings = load(tmp_path, '[web]\ntavily_key_env = "MY_KEY"\n', MY_KEY="tavily-key-1", BRAVE_API_KEY="brave-key-1")
    assert settings.web.tavily_key.reveal() == "tavily-key-1" and settings.web.brave_key.reveal() == "brave-key-1"
    assert {"tavily-key-1", "brave-key-1"} <= {*settings.secrets()} and "tavily-key-1" not in repr(settings.web)


def test_missing_keys_are_no_problem(tmp_path):
    web = load(tmp_path, '[web]\nsearch = "brave"\n').web
    assert (web.search, web.brave_key.reveal()) == ("brave", "")


@pytest.mark.parametrize(
    "line",
    [
        'search = "altavista"',
        'searxng_url = "nas.lan"',
        "max_bytes = 1",
        "parallel = 0",
        'brave_key_env = "sk-123 456"',
    ],
)
def test_bad_values_are_refused(tmp_path, line):
    with pytest.raises(ConfigError, match=r"config\.toml:2"):
        load(tmp_path, f"[web]\n{line}\n")
