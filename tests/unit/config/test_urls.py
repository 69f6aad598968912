"""Addresses and proxy variables: what is accepted, and what is said of the rest."""

import httpx2
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from alipes.config.display import format_value, mask
from alipes.config.loader import load_settings
from alipes.config.urls import InvalidValue, check_base_url, check_no_proxy, check_proxy
from alipes.kernel.errors import ConfigError
from alipes.kernel.models import Proxies

SCHEMES = st.sampled_from(["", "http://", "https://", "http:/", "socks5://", "ftp://", "://"])
HOSTS = st.sampled_from(["localhost", "127.0.0.1", "[::1]", "::1", "api.x.com", "a b", "-", "1.2.3", "", "x_y", "ü"])
ENDS = st.sampled_from(["", ":1", ":0", ":99999", ":8b", ":", "/v1", "/v1/", "?a=b", "#f", "/a@b", "\n", "\x00", "/é"])


@pytest.mark.parametrize(
    ("given", "kept"),
    [
        ("http://127.0.0.1:9100/v1", "http://127.0.0.1:9100/v1"),
        ("https://api.example.com/v1/", "https://api.example.com/v1"),
        ("HTTPS://Example.COM", "https://example.com"),
        ("http://[::1]:8080/v1", "http://[::1]:8080/v1"),
        ("http://[::ffff:127.0.0.1]/", "http://[::ffff:127.0.0.1]"),
        ("http://my_box:8000/v1", "http://my_box:8000/v1"),
        ("http://localhost", "http://localhost"),
    ],
)
def test_a_good_base_url_is_kept_without_its_last_slash(given, kept):
    assert check_base_url(given) == kept


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ("", "is empty: write http://HOST:PORT/v1"),
        ("  ", "is blank"),
        ("ftp://example.com", "start it with http:// or https://"),
        ("htps://example.com", "Did you mean https?"),
        ("http:/example.com", "write http://"),
        ("http//example.com", "write http://"),
        ("https://https://example.com", "has two schemes"),
        ("http://", "has no host"),
        ("http:///v1", "has no host"),
        ("http://:8080", "has no host"),
        ("http://host:0", "has a port out of range"),
        ("http://host:65536", "has a port out of range"),
        ("http://host:", "add the port"),
        ("http://host:80a/v1", "has a port that is not a number"),
        ("http://host:٣", "has a port that is not a number"),
        ("http://127.0.0.1:6153export", "two lines were joined after 6153"),
        ("http://ho st/v1", "contains a space"),
        (" http://host/v1", "contains a space"),
        ("http://host/v1\n", "contains control characters"),
        ("http://host\\v1", "contains a backslash"),
        ('"http://host/v1"', "remove them"),
        ("http://a..b", "invalid host name"),
        ("http://-a.com", "invalid host name"),
        ("http://256.1.1.1", "four numbers"),
        ("http://1.2.3", "four numbers"),
        ("http://münchen.example", "xn--"),
        ("http://::1:80/v1", "[brackets]"),
        ("http://[::g]/", "broken IPv6"),
        ("http://[1:2]/", "broken IPv6"),
        ("http://[::1/", "broken IPv6"),
        ("localhost:8080", "write http://localhost:8080"),
        ("127.0.0.1:9100/v1", "write http://127.0.0.1:9100/v1"),
        ("api.example.com/v1", "write https://api.example.com/v1"),
        ("gpt-4o", "looks like a model name"),
        ("openai/gpt-4o", "looks like a model name"),
        ("llama3.1:8b", "looks like a model name"),
        ("sk-ant-api03-abcdefghijkl", "looks like a key"),
        ("http://host/v1/chat/completions", "remove /chat/completions"),
        ("http://host/v1?key=abc", "query or fragment"),
        ("http://user:pass@host/v1", "user name or password"),
    ],
)
def test_a_bad_base_url_is_refused_with_its_fix(given, said):
    with pytest.raises(InvalidValue) as caught:
        check_base_url(given)
    assert said in str(caught.value)


@settings(deadline=None)
@given(st.builds(str.__add__, SCHEMES, st.builds(str.__add__, HOSTS, ENDS)))
def test_what_we_accept_the_http_client_accepts(text):
    try:
        kept = check_base_url(text)
    except InvalidValue:
        return
    assert httpx2.URL(kept).host
    assert check_base_url(kept) == kept


@settings(deadline=None)
@given(st.text() | st.builds(str.__add__, SCHEMES, st.text()))
def test_any_text_is_an_address_or_wrong(text):
    for check in (check_base_url, check_proxy, check_no_proxy):
        try:
            check(text)
        except InvalidValue as wrong:
            assert str(wrong)


@pytest.mark.parametrize(
    ("given", "kept"),
    [
        ("http://proxy:3128", "http://proxy:3128"),
        ("http://proxy:3128/", "http://proxy:3128"),
        ("https://me:pa%2Fss@proxy.example.com:443", "https://me:pa%2Fss@proxy.example.com:443"),
        ("socks://127.0.0.1:1080", "socks5://127.0.0.1:1080"),
        ("socks5h://127.0.0.1:1080", "socks5h://127.0.0.1:1080"),
    ],
)
def test_a_good_proxy_is_kept(given, kept):
    assert check_proxy(given) == kept


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ("proxy:3128", "write http://proxy:3128"),
        ("127.0.0.1:8080", "write http://127.0.0.1:8080"),
        ("gpt-4o", "model name"),
        ("socks4://proxy:1080", "start it with"),
        ("http://proxy:port", "not a number"),
        ("http://user:pa/ss@proxy:3128", "%2F"),
        ("http://wpad/proxy.pac", "proxy script"),
        ("http://proxy:3128/path", "remove /path"),
    ],
)
def test_a_bad_proxy_is_refused_with_its_fix(given, said):
    with pytest.raises(InvalidValue) as caught:
        check_proxy(given)
    assert said in str(caught.value)


def test_no_proxy_is_a_list_of_hosts():
    assert check_no_proxy("localhost, 127.0.0.1,.corp,*.example.com 10.0.0.0/8,::1,[::1]:80,box:8080") == (
        *("localhost", "127.0.0.1", ".corp", ".example.com", "10.0.0.0/8", "::1", "[::1]:80", "box:8080"),
    )
    assert check_no_proxy("*") == ("*",)
    for bad in ("http://host", "host/path", "ho\x00st", "a..b", "host:port"):
        with pytest.raises(InvalidValue):
            check_no_proxy(bad)


def test_lower_case_proxy_variables_win(tmp_path):
    environ = {
        "HTTP_PROXY": "http://upper:1",
        "http_proxy": "http://lower:1",
        "HTTPS_PROXY": "http://secure:2",
        "no_proxy": "localhost",
    }
    assert load_settings(tmp_path, environ).proxies == Proxies("http://lower:1", "http://secure:2", "", ("localhost",))


def test_http_proxy_in_capitals_is_not_trusted_inside_a_cgi_server(tmp_path):
    assert load_settings(tmp_path, {"HTTP_PROXY": "http://evil:1", "REQUEST_METHOD": "GET"}).proxies == Proxies()
    kept = load_settings(tmp_path, {"http_proxy": "http://good:1", "REQUEST_METHOD": "GET"}).proxies
    assert kept.http == "http://good:1"


def test_an_empty_proxy_variable_is_none(tmp_path):
    assert load_settings(tmp_path, {"HTTP_PROXY": "", "ALL_PROXY": ""}).proxies == Proxies()


@pytest.mark.parametrize("name", ["HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "http_proxy", "https_proxy", "all_proxy"])
def test_a_bad_proxy_variable_is_named_and_its_password_is_not(tmp_path, name):
    with pytest.raises(ConfigError) as caught:
        load_settings(tmp_path, {name: "http://me:hunter2@proxy:6153export"})
    assert f'environment: {name} = "http://***@proxy:6153export" has a port' in str(caught.value)
    assert "hunter2" not in str(caught.value)


def test_a_bad_proxy_in_the_env_file_is_named_with_its_line(tmp_path):
    (tmp_path / ".env").write_text("# mine\nHTTPS_PROXY=ftp://proxy\n")
    with pytest.raises(ConfigError, match=r"\.env:2: HTTPS_PROXY = "):
        load_settings(tmp_path, {})


def test_a_socks_proxy_says_which_package_it_needs(tmp_path):
    with pytest.raises(ConfigError, match="pip install socksio"):
        load_settings(tmp_path, {"ALL_PROXY": "socks5://127.0.0.1:1080"})
    both = {"HTTP_PROXY": "http://p:1", "HTTPS_PROXY": "http://p:1"}
    assert load_settings(tmp_path, {"ALL_PROXY": "socks://127.0.0.1:1080/", **both}).proxies.all == ""


def test_an_idle_all_proxy_is_still_checked(tmp_path):
    environ = {"HTTP_PROXY": "http://p:1", "HTTPS_PROXY": "http://p:1", "ALL_PROXY": "nonsense"}
    with pytest.raises(ConfigError, match="ALL_PROXY"):
        load_settings(tmp_path, environ)


@pytest.mark.parametrize(
    ("given", "kept"),
    [
        ("http://me:se/c@ret@host:1/x", "http://***@host:1/x"),
        ("me:secret@host:1", "***@host:1"),
        ("https://host/v1?key=abcd&n=1", "https://host/v1?key=***&n=***"),
        ("sk-ant-REALLYSECRET", "sk-ant-***"),
        ("Bearer abcdefgh", "Bearer ***"),
        ("use sk-abcdefghijk now", "use sk-*** now"),
        ("1234567890:AAHfiqksKZ8WmR2zSjiQ7_v4TMAKdiHm9T0", "***"),
        ("0123456789abcdef0123456789abcdef", "***"),
        ("claude-sonnet-5-5", "claude-sonnet-5-5"),
        ("http://127.0.0.1:9100/v1", "http://127.0.0.1:9100/v1"),
    ],
)
def test_secrets_in_a_value_are_masked_and_the_rest_is_shown(given, kept):
    assert mask(given) == kept


def test_a_value_is_shown_short_and_printable():
    assert format_value("a\nb\x00") == '"a\\nb\\u0000"'
    assert len(format_value("x" * 5000)) == 100
    assert format_value({"api_key": "anything", "n": [1, True, None]}) == '{api_key = "***", n = [1, true, None]}'
    deep: list = []
    for _ in range(10_000):
        deep = [deep]
    assert "…" in format_value(deep)
