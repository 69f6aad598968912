"""A link that names another host than its target is recognised."""

import pytest

from alipes.runtime.links import is_misleading, link_host


@pytest.mark.parametrize(
    ("text", "address", "misleads"),
    [
        ("https://bank.example", "https://evil.example", True),
        ("https://bank.example/login", "https://bank.example.evil.example/login", True),
        ("bank.example", "https://evil.example/bank.example", True),
        ("bank.example", "https://bank.example@evil.example/", True),
        ("Log in at https://bank.example now", "https://evil.example", True),
        ("www.bank.example", "https://evil.example", True),
        ("b\u0430nk.example", "https://bank.example", True),
        ("[::1]", "http://[::2]/", True),
        ("https://bank.example", "https://bank.example/login?x=1", False),
        ("www.bank.example", "https://bank.example", False),
        ("BANK.example", "https://bank.example", False),
        ("the docs", "https://evil.example", False),
        ("main.py", "https://host.example/main.py", False),
        ("https://main.py", "https://evil.example", True),
        ("ann@mail.example", "mailto:ann@mail.example", False),
        ("", "https://evil.example", False),
        ("http://[broken", "https://evil.example", False),
    ],
)
def test_a_link_misleads_if_its_text_names_another_host(text, address, misleads):
    assert is_misleading(text, address) is misleads


def test_the_host_is_what_follows_the_user_name():
    assert link_host("https://bank.example:443@EVIL.example:8443/x") == "evil.example"
    assert link_host("http://[broken") == "" == link_host("mailto:a@b.example")


def test_a_long_text_is_read_in_linear_time():
    assert not is_misleading("a." * 200_000 + "@" * 200_000, "https://evil.example")
