"""Every attempt to leave a sandbox fails on every backend, and succeeds on the host, which shows that it is one.

All attempts of a backend run before its first test: opening a container for each would take long.
"""

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping
from functools import cache

import msgspec
import pytest

from alipes.runtime.sandbox.backend import CommandScope
from tests.contract.breach_runner import Outcome, chosen, run
from tests.world.breach_world import open_breach_world
from tests.world.environment import FIXED, ROOT
from tests.world.sandboxes import BACKENDS, open_backend, open_machine

AS_USER = "bubblewrap as nobody"
NOBODY = 65534
SANDBOXES = (*(name for name in BACKENDS if name != "host"), AS_USER)
KNOWN_GAPS = {("landlock", "other processes are listed"): "without a process namespace; `doctor` says so"}


@pytest.fixture(scope="module")
def outcomes(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Mapping[str, Outcome]]:
    """A function from a backend to what its attempts did; they run with the first call."""

    @cache
    def find(name: str) -> Mapping[str, Outcome] | BaseException:
        try:
            return run_as_nobody() if name == AS_USER else run(name, tmp_path_factory.mktemp("b"))
        except (pytest.skip.Exception, pytest.fail.Exception, AssertionError, OSError) as reason:
            return reason  # not tried again for each attempt

    def find_or_raise(name: str) -> Mapping[str, Outcome]:
        found = find(name)
        if isinstance(found, BaseException):
            raise found
        return found

    return find_or_raise


def run_as_nobody() -> Mapping[str, Outcome]:
    """The attempts of a user without rights, if we are root and the system's Python can run them."""
    setpriv, python = shutil.which("setpriv"), "/usr/bin/python3"
    if os.getuid() or setpriv is None:
        pytest.skip("only root can become another user, with setpriv")
    with tempfile.TemporaryDirectory(prefix="b") as folder:
        os.chown(folder, NOBODY, NOBODY)
        path = ":".join((str(ROOT / "src"), str(ROOT), *(entry for entry in sys.path if "site-packages" in entry)))
        variables = {"PATH": os.environ["PATH"], "HOME": folder, "PYTHONPATH": path, **FIXED}
        user = [setpriv, f"--reuid={NOBODY}", f"--regid={NOBODY}", "--clear-groups"]
        if subprocess.run([*user, python, "-c", "import msgspec._core"], env=variables, capture_output=True).returncode:
            pytest.skip("the system's Python cannot import the packages of the tests")
        argv = [*user, python, "-m", "tests.contract.breach_runner", "bubblewrap", folder]
        done = subprocess.run(argv, env=variables, cwd="/", capture_output=True)
        assert done.returncode == 0, done.stderr.decode()
    return msgspec.json.decode(done.stdout, type=dict[str, Outcome])


@pytest.mark.parametrize("breach", [breach.name for breach in chosen("host")])
def test_the_attempt_succeeds_on_the_host(outcomes, breach):
    outcome = outcomes("host")[breach]
    assert outcome.happened, outcome.output


@pytest.mark.parametrize(("backend", "breach"), [(name, breach.name) for name in SANDBOXES for breach in chosen(name)])
def test_the_attempt_fails_in_the_sandbox(outcomes, backend, breach):
    outcome = outcomes(backend)[breach]
    if reason := KNOWN_GAPS.get((backend, breach)):
        pytest.xfail(reason)
    assert not outcome.happened, outcome.output


@pytest.mark.parametrize("name", ["bubblewrap", "landlock"])
async def test_a_project_behind_a_link_is_the_real_one_and_nothing_around_it(name, tmp_path):
    with open_machine(name, tmp_path), open_breach_world(tmp_path / "w") as world:
        async with open_backend(name, home=world.home) as backend:
            workdir, output = str(world.linked_workdir), b""
            script = "echo new >new; cat ../../.ssh/id_ed25519 ../other/notes.txt ../../linked-work/other/notes.txt"
            async with backend.open(script, CommandScope("s1", workdir), cwd=workdir, env=world.environment()) as child:
                while piece := await child.read():
                    output += piece
        assert (world.workdir / "new").exists(), output.decode()
        assert world.canary not in output.decode()
