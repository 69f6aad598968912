"""Packages of a feature at its first use: who is asked, and what is answered where nobody can be asked."""

import re

import pytest

from alipes.config import extras
from alipes.config.settings import InstallConfig, Settings
from alipes.core.extras import ExtraInstaller, run_installer
from alipes.kernel.errors import ToolError
from alipes.kernel.turns import Address, AnswerQuestion, Inbound, Turn
from alipes.runtime import packages


def turn(platform="terminal", origin=None):
    return Turn("t", "s", Inbound("", Address(platform, "here"), platform, ""))


class People:
    """Answers questions with `reply`, and remembers them."""

    def __init__(self, reply):
        self.reply, self.asked = reply, []

    async def ask_question(self, turn, text, choices, seconds):
        self.asked.append((text, choices))
        return None if self.reply is None else AnswerQuestion("1", self.reply, "ann")


class Machine:
    """What is installed, and the installer."""

    def __init__(self, error=""):
        self.present, self.installed, self.error = set(), [], error

    async def run(self, requirements):
        if self.error:
            raise ToolError(self.error)
        self.installed.append(requirements)
        listed = re.findall(r"(?m)^([\w.-]+)==", requirements)
        self.present |= {name for name, extra in extras.EXTRAS.items() if {*extra.packages} <= {*listed}}


def open_extras(home, people, machine, *, auto=False):
    notes = []
    settings = Settings(home=home, install=InstallConfig(auto=auto))
    notify = lambda text, turn: notes.append(text)  # noqa: E731
    made = ExtraInstaller(people, settings, notify, run=machine.run, is_installed=machine.present.__contains__)
    return made, notes


async def test_a_yes_at_the_terminal_installs_the_pinned_packages_and_is_remembered(tmp_path):
    people, machine = People("yes"), Machine()
    installer, notes = open_extras(tmp_path, people, machine)
    await installer.require("email", turn())
    await installer.require("email", turn())
    assert len(people.asked) == len(machine.installed) == len(notes) == 1
    text, choices = people.asked[0]
    assert text.startswith("Mail needs ") and text.endswith(" MB). Install them now?") and choices == ("yes", "no")
    assert machine.installed[0].startswith("aiosmtplib==") and "--hash=sha256:" in machine.installed[0]
    assert extras.read_added(tmp_path) == ("email",)


@pytest.mark.parametrize("name", extras.EXTRAS)
async def test_every_extra_is_installed_after_one_yes_at_a_terminal(tmp_path, monkeypatch, name):
    monkeypatch.setattr(extras, "list_missing", lambda name: extras.EXTRAS[name].packages)
    people, machine = People("yes"), Machine()
    installer, notes = open_extras(tmp_path, people, machine)
    for _ in range(2):
        await installer.require(name, turn())
    ((question, choices),) = people.asked
    assert re.fullmatch(r"[A-Z].* needs .*package.* \(\d+ MB\)\. Install them now\?", question)
    assert choices == ("yes", "no") and len(notes) == 1
    (requirements,) = machine.installed
    assert all(f"{package}==" in requirements for package in extras.EXTRAS[name].packages)
    assert requirements.count("--hash=sha256:") >= requirements.count("==")
    assert extras.read_added(tmp_path) == (name,)


@pytest.mark.parametrize("name", extras.EXTRAS)
async def test_every_extra_is_a_sentence_with_its_command_in_a_chat(tmp_path, monkeypatch, name):
    monkeypatch.setattr(extras, "list_missing", lambda name: extras.EXTRAS[name].packages)
    people, machine = People("yes"), Machine()
    installer, _ = open_extras(tmp_path, people, machine)
    with pytest.raises(ToolError, match=rf" MB\): run `alipes install {name}`\.$"):
        await installer.require(name, turn("telegram"))
    assert people.asked == machine.installed == [] and extras.read_added(tmp_path) == ()


@pytest.mark.parametrize("name", extras.EXTRAS)
async def test_every_extra_is_refused_offline_with_a_sentence(tmp_path, name):
    said = packages._explain("WARNING: Retrying after NewConnectionError(Temporary failure in name resolution)")
    installer, _ = open_extras(tmp_path, People("yes"), Machine(said))
    with pytest.raises(ToolError, match=rf"check the network and the proxy, .*`alipes install {name}`"):
        await installer.require(name, turn())
    assert extras.read_added(tmp_path) == ()


@pytest.mark.parametrize("name", extras.EXTRAS)
async def test_every_extra_is_refused_in_a_read_only_environment_with_a_sentence(tmp_path, monkeypatch, name):
    why = "/usr/lib/alipes is read-only, so nothing can be installed there: install it where alipes comes from."
    monkeypatch.setattr(packages, "find_obstacle", lambda: why)
    people, machine = People("yes"), Machine()
    installer, _ = open_extras(tmp_path, people, machine)
    with pytest.raises(ToolError, match=r" needs .* is read-only, so nothing can be installed there"):
        await installer.require(name, turn())
    assert people.asked == machine.installed == []


async def test_a_no_is_a_sentence_with_the_command_and_is_not_asked_again(tmp_path):
    people, machine = People("no"), Machine()
    installer, _ = open_extras(tmp_path, people, machine)
    for _ in range(2):
        with pytest.raises(ToolError, match="run `alipes install email`"):
            await installer.require("email", turn())
    assert len(people.asked) == 1 and machine.installed == []


@pytest.mark.parametrize("platform", ["telegram", "schedule", "api", "web"])
async def test_chats_schedules_and_the_api_get_the_sentence_and_nobody_is_asked(tmp_path, platform):
    people, machine = People("yes"), Machine()
    installer, _ = open_extras(tmp_path, people, machine)
    with pytest.raises(ToolError, match="run `alipes install email`"):
        await installer.require("email", turn(platform))
    assert people.asked == [] and machine.installed == []


async def test_where_nobody_answers_nothing_is_installed(tmp_path):
    people, machine = People(None), Machine()
    installer, _ = open_extras(tmp_path, people, machine)
    for asked in (turn(), None):
        with pytest.raises(ToolError, match="run `alipes install email`"):
            await installer.require("email", asked)
    assert machine.installed == []


async def test_what_was_installed_before_an_upgrade_is_installed_again_without_a_question(tmp_path):
    extras.remember_added(tmp_path, ["email"])
    people, machine = People("no"), Machine()
    installer, _ = open_extras(tmp_path, people, machine)
    await installer.require("email", turn("telegram"))
    assert people.asked == [] and len(machine.installed) == 1


async def test_the_setting_installs_without_a_question(tmp_path):
    people, machine = People("no"), Machine()
    installer, _ = open_extras(tmp_path, people, machine, auto=True)
    await installer.require("email", turn("telegram"))
    assert people.asked == [] and len(machine.installed) == 1


async def test_a_failed_installation_is_a_sentence_with_the_command(tmp_path):
    people, machine = People("yes"), Machine("The packages could not be downloaded: check the network.")
    installer, _ = open_extras(tmp_path, people, machine)
    with pytest.raises(ToolError, match=r"check the network\. The command is `alipes install email`"):
        await installer.require("email", turn())
    assert extras.read_added(tmp_path) == ()


async def test_the_installer_runs_in_a_child_and_its_reason_is_the_error():
    with pytest.raises(ToolError, match=r"could not be installed: .*/nowhere/x-1-py3"):
        await run_installer("no-such-package-of-anybody @ file:///nowhere/x-1-py3-none-any.whl --hash=sha256:00\n")
