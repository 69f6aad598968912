"""Names of the project are exchanged with links while commands, file tools, attachments, checkpoints and questions act.

For an hour, and with other seeds: `python -m tests.torture.exchanges`.
"""

import pytest

from tests.torture.exchanges import ExchangeReport, open_trial
from tests.torture.trials import seeds, trials
from tests.world.sandboxes import SANDBOXES


@pytest.mark.deadline(600)
@pytest.mark.parametrize("seed", seeds(1))
@pytest.mark.parametrize("sandbox", [*SANDBOXES])
async def test_nothing_outside_is_read_or_changed_while_names_are_exchanged(sandbox, seed, tmp_path, figures):
    report, rounds = ExchangeReport(seed, sandbox), iter(range(trials(2, 20)))
    async with open_trial(sandbox, tmp_path, report) as trial:
        await trial.run(lambda: next(rounds, None) is not None)
    assert report.violations == []
    assert report.acts["run_nothing"] and report.acts["run_command"]
    figures.tried(report.acts.total())
