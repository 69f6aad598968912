import shutil

import pytest

from tests.world.checkpoints import CheckpointWorld


@pytest.fixture
def world(tmp_path):
    if shutil.which("git") is None:
        pytest.skip("git is not installed")
    return CheckpointWorld(tmp_path)
