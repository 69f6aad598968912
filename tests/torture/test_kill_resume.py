"""`kill -9` at random moments of a ten-step turn; the next process on that home resumes it."""

import json
import random

import pytest

from tests.torture.trials import seeds
from tests.world.kill_trial import PLAN, run_trial
from tests.world.model_server import serve


@pytest.mark.deadline(120)
@pytest.mark.parametrize("seed", seeds(3, 20))
async def test_a_killed_turn_is_finished_by_the_next_process_and_no_finished_step_is_repeated(seed, tmp_path, figures):
    rng = random.Random(seed)
    async with serve(json.dumps(PLAN), tmp_path) as server:
        for n in range(3):
            seen = await run_trial(tmp_path / str(n), server, rng.random() * 0.4)
            assert seen.ending == "answered", seen
            assert seen.repeated == (), seen
            assert seen.unknown <= 1, seen
            assert seen.rejected == 0, seen
            figures.worst("calls with unknown result in one turn", seen.unknown)
    figures.tried(3)
