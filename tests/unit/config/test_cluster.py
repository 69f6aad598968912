"""The settings of the store and of a cluster."""

import pytest

from alipes.cli.main import main
from alipes.config.loader import load_settings
from alipes.config.paths import Paths
from alipes.config.sections.cluster import url_password, with_password, without_password
from alipes.kernel.errors import ConfigError

URL = "postgresql://ada@db.example.com:5432/agent"


def load(home, text="", **environ):
    Paths(home).config.write_text(text)
    return load_settings(home, environ)


def problem(home, text="", **environ):
    with pytest.raises(ConfigError) as raised:
        load(home, text, **environ)
    return str(raised.value)


def test_without_the_setting_the_store_is_sqlite(tmp_path):
    assert load(tmp_path).store_urls() == ("", "")


def test_a_url_in_the_file_is_used_as_it_is(tmp_path):
    assert load(tmp_path, f'store = "{URL}"').store_urls() == (URL, "")


def test_the_short_scheme_is_the_same(tmp_path):
    assert load(tmp_path, f'store = "{URL.replace("postgresql", "postgres")}"').store == URL


def test_the_password_comes_from_its_variable(tmp_path):
    settings = load(tmp_path, f'store = "{URL}"\nstore_direct = "{URL}?a=b"', ALIPES_STORE_PASSWORD="a b@c/secret")
    secret = "postgresql://ada:a%20b%40c%2Fsecret@db.example.com:5432/agent"
    assert settings.store_urls() == (secret, f"{secret}?a=b")


def test_the_variable_of_the_password_may_have_another_name(tmp_path):
    text = f'store = "{URL}"\nstore_password_env = "DB_PASSWORD"'
    assert url_password(load(tmp_path, text, DB_PASSWORD="long-secret").store_urls()[0]) == "long-secret"


def test_a_url_without_a_user_gets_the_password_as_an_option():
    assert with_password("postgresql:///agent?host=/run/db", "a&b") == "postgresql:///agent?host=/run/db&password=a%26b"


def test_a_password_in_a_url_of_the_environment_is_kept_and_hidden(tmp_path):
    url = "postgresql://ada:url-secret@db/agent"
    settings = load(tmp_path, ALIPES_STORE=url, ALIPES_STORE_PASSWORD="other-secret")
    assert settings.store_urls()[0] == url
    assert {"url-secret", "other-secret"} <= set(settings.secrets())


def test_a_password_in_the_file_is_refused_and_not_repeated(tmp_path):
    found = problem(tmp_path, 'store = "postgresql://ada:url-secret@db/agent"')
    assert "contains a password: move it to .env (run `alipes config set ALIPES_STORE_PASSWORD -`)" in found
    assert "url-secret" not in found


@pytest.mark.parametrize(
    ("url", "reason"),
    [
        ("mysql://db/agent", "must be the URL of a PostgreSQL database"),
        ("sqlite:///x.db", "Empty means SQLite in the home"),
        ("/tmp/x.db", "Empty means SQLite in the home"),
        ("postgresql://db", "names no database"),
        ("postgresql://db/a b", "contains spaces"),
        ("postgresql://db/a#b", "contains #"),
        ("postgresql://[::1/a", "is not a valid URL"),
    ],
)
def test_an_unusable_url_is_explained(tmp_path, url, reason):
    assert reason in problem(tmp_path, f'store = "{url}"')


def test_a_direct_route_needs_a_store(tmp_path):
    assert "needs store" in problem(tmp_path, f'store_direct = "{URL}"')


def test_a_service_file_may_name_the_database(tmp_path):
    assert load(tmp_path, 'store = "postgresql://?service=agent"').store == "postgresql://?service=agent"


def test_a_url_for_people_has_no_password():
    url = "postgresql://ada:x@db/agent?password=y&sslmode=require"
    assert without_password(url) == "postgresql://ada@db/agent?sslmode=require"


def test_every_role_is_the_default(tmp_path):
    assert load(tmp_path).cluster.roles == ("listen", "work", "web")


def test_roles_come_from_the_variable_too(tmp_path):
    assert load(tmp_path, ALIPES_CLUSTER_ROLES="web,work").cluster.roles == ("work", "web")


@pytest.mark.parametrize(
    ("roles", "reason"),
    [
        ('["lissten"]', "contains 'lissten': use listen, work and web. Did you mean"),
        ("[]", "is empty"),
        ('["work", "work"]', "lists a role twice"),
        ('"work"', "must be a list"),
    ],
)
def test_wrong_roles_are_explained(tmp_path, roles, reason):
    assert reason in problem(tmp_path, f"[cluster]\nroles = {roles}")


def test_a_capacity_of_zero_is_refused(tmp_path):
    assert "cluster.capacity" in problem(tmp_path, "[cluster]\ncapacity = 0")


def test_config_why_names_the_source_and_hides_the_password(tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("ALIPES_HOME", str(tmp_path))
    monkeypatch.setenv("ALIPES_STORE", "postgresql://ada:url-secret@db/agent")
    assert main(["config", "why", "store"]) == 0
    shown = capsys.readouterr().out
    assert "from ALIPES_STORE" in shown
    assert "url-secret" not in shown
