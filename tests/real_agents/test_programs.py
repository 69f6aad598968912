"""The real programs of vendors, against the scripted model. `tools/agent-programs` installs them."""

from contextlib import asynccontextmanager

import pytest

from tests.real_agents.programs import PROGRAMS
from tests.real_agents.scenario import COLUMNS, Scenario

pytestmark = pytest.mark.deadline(600)


@asynccontextmanager
async def said_on_failure(scenario):
    try:
        yield
    except BaseException:
        print(scenario.describe())
        raise


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: program.name)
async def test_a_conversation_on_telegram(program, tmp_path, record_property):
    if missing := program.find_missing():
        pytest.skip(missing)
    scenario = Scenario(program, tmp_path)
    record_property("real agent", scenario.row)
    async with scenario.open(), said_on_failure(scenario):
        await scenario.initialise()
        async with scenario.serve() as served:
            await scenario.talk()
            await scenario.edit()
            await scenario.use_our_tools()
            await scenario.stop()
            await scenario.kill(served)
        async with scenario.serve():
            await scenario.go_on()
        await scenario.wait_until_gone()
    assert scenario.row["orphans"] == "0" and set(scenario.row) == set(COLUMNS)
    assert "yes" == scenario.row["stream"] == scenario.row["edit with diff"]
