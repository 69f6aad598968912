"""Commands that a person runs: no question, the same tool, and never what nothing allows."""

import pytest

from alipes.kernel.ports import ToolSpec
from alipes.plugins.registry import Contributions
from alipes.sessions.user_shell import UserShell
from alipes.testing.scripted_provider import ScriptedProvider
from alipes.tools.common import Places
from tests.world.session_harness import inbound, open_sessions


class FakeTerminal:
    spec = ToolSpec("terminal", "", {})

    def __init__(self):
        self.ran = []

    async def run(self, args, act):
        self.ran.append((args["command"], act.turn.inbound.trusted))
        await act.progress("live")
        return "output\n[exit code 0]"


async def shell_result(tmp_path, command, shown):
    tool, offers = FakeTerminal(), Contributions()
    offers.add_builtin(tool)

    async def show(text):
        shown.append(text)

    async with open_sessions(tmp_path, ScriptedProvider([])) as house:
        shell = UserShell(house.store, offers, Places(home=str(tmp_path), alipes_home=str(tmp_path / ".alipes")))
        return await shell.run(command, inbound("1", ""), show), tool.ran


async def test_a_dangerous_command_of_the_person_is_run_without_a_question(tmp_path):
    shown = []
    result, ran = await shell_result(tmp_path, "git push --force", shown)
    assert (result.outcome, result.text, shown) == ("ok", "output\n[exit code 0]", ["live"])
    assert ran == [("git push --force", True)]


@pytest.mark.parametrize("command", ["dd if=/dev/zero of=/dev/sda"])
async def test_a_command_that_nothing_allows_is_not_run(tmp_path, command):
    result, ran = await shell_result(tmp_path, command, [])
    assert result.outcome == "denied" and result.text.startswith("Not run: it ") and not ran
