"""The process lock: one holder at a time, released however it ends."""

import os
import signal
import subprocess
import sys
import time

import pytest

from alipes.kernel.errors import ConfigError
from alipes.runtime.process_lock import AlreadyRunning, find_holder, hold_process_lock

HOLDS = (
    "import sys, time, pathlib\n"
    "from alipes.runtime.process_lock import hold_process_lock\n"
    "with hold_process_lock(pathlib.Path(sys.argv[1])) as held:\n"
    "    held.write_address('http://127.0.0.1:1')\n"
    "    print('held', flush=True)\n"
    "    time.sleep(60)\n"
)


def test_who_comes_second_learns_who_was_first(tmp_path):
    path = tmp_path / "claim"
    with hold_process_lock(path) as held:
        held.write_address("http://127.0.0.1:8742")
        with pytest.raises(AlreadyRunning, match=rf"process {os.getpid()} at http://127.0.0.1:8742.*--replace"):
            with hold_process_lock(path):
                pass
        found = find_holder(path)
        assert found is not None
        assert (found.pid, found.address) == (os.getpid(), "http://127.0.0.1:8742")
    assert find_holder(path) is None
    with hold_process_lock(path) as held:
        held.write_address("x")
        assert find_holder(path).address == "x", "a shorter word leaves nothing of the longer one"


def test_death_releases_it(tmp_path):
    path = tmp_path / "claim"
    child = subprocess.Popen([sys.executable, "-c", HOLDS, str(path)], stdout=subprocess.PIPE)
    with child:
        assert child.stdout.readline() == b"held\n"
        found = find_holder(path)
        assert found is not None and found.pid == child.pid
        assert found.started <= time.time()
        child.send_signal(signal.SIGKILL)
        child.wait()
    assert find_holder(path) is None
    with hold_process_lock(path):
        pass


def test_a_child_does_not_inherit_it(tmp_path):
    path = tmp_path / "claim"
    with hold_process_lock(path):
        child = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE, close_fds=False)
    with child:
        until = time.monotonic() + 5
        while find_holder(path) is not None:  # a new program lets go a moment after it began
            assert time.monotonic() < until
        child.communicate(b"\n")


def test_a_claim_that_was_never_made_has_no_holder_and_one_that_cannot_be_is_reported(tmp_path):
    assert find_holder(tmp_path / "none") is None
    with pytest.raises(ConfigError, match="cannot be written"), hold_process_lock(tmp_path / "no" / "folder"):
        pass
