"""Offering packages on the command line: before a conversation, and after a command has failed for want of them."""

import pytest

from alipes.config import extras
from alipes.config.settings import Settings
from alipes.console import extras as offers
from alipes.features.browser.settings import BrowserConfig
from alipes.kernel.errors import ConfigError, MissingExtra


@pytest.fixture
def installed(monkeypatch, tmp_path):
    """Nothing is there, and what is installed is listed. The home says that a person has installed all once."""
    done = list[str]()
    monkeypatch.setenv("ALIPES_HOME", str(tmp_path))
    extras.remember_added(tmp_path, extras.EXTRAS)
    monkeypatch.setattr(extras, "is_installed", lambda name: name in done)
    monkeypatch.setattr(offers, "install_extras", done.extend)
    return done


def test_the_browser_is_offered_where_it_is_switched_on(installed, tmp_path):
    offers.offer_browser(Settings(home=tmp_path))
    assert installed == []
    for _ in range(2):
        offers.offer_browser(Settings(home=tmp_path, browser=BrowserConfig(enabled=True)))
    assert installed == ["browser"]


@pytest.mark.parametrize("name", extras.EXTRAS)
def test_every_extra_that_a_command_lacks_is_installed_once_and_the_command_tried_again(installed, name):
    error = MissingExtra("run `alipes install it`", name)
    assert offers.install_missing(ExceptionGroup("", [ConfigError("x"), error])) and installed == [name]
    assert not offers.install_missing(error) and installed == [name]
    assert not offers.install_missing(ConfigError("x"))


@pytest.mark.parametrize("name", extras.EXTRAS)
def test_an_upgrade_installs_again_what_was_added(installed, name):
    """The packages are gone with the environment; the list in the home is the yes."""
    assert offers.offer_extra(name) and installed == [name]


def test_without_a_terminal_and_without_an_earlier_yes_the_command_is_named(installed, tmp_path, capsys):
    (tmp_path / extras.ADDED).unlink()
    assert not offers.offer_extra("email") and installed == []
    assert capsys.readouterr().err.endswith("run `alipes install email`.\n")
