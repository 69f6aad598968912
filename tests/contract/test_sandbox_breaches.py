"""Every attempt to leave a sandbox fails on every backend, and succeeds on the host, which shows that it is one."""

from collections.abc import Mapping

import msgspec
import pytest

from alipes.runtime.sandbox.backend import CommandScope
from tests.contract.breach_runner import Outcome, chosen, run
from tests.world.breach_world import open_breach_world
from tests.world.other_user import folder_of_nobody, run_as_nobody
from tests.world.sandboxes import BACKENDS, open_backend, open_machine

AS_USER = " as nobody"
KINDS = ("bubblewrap", "landlock", "landlock alone")
SANDBOXES = (*KINDS, *(name for name in BACKENDS if name not in ("host", *KINDS)), *(name + AS_USER for name in KINDS))
LISTED = "without a process namespace; `doctor` says so"
KNOWN_GAPS = {
    "landlock alone": {
        "other processes are listed": LISTED,
        "write a git hook": "without mounts; it is switched off when the command ends, and `doctor` says so",
    },
    "landlock alone as nobody": {
        "other processes are listed": LISTED,
        "write a git hook": "the same",
        "fork bomb": "it is stopped later: the kernel counts the processes of the user, and the limit adds all others",
    },
}


def run_attempts_as_nobody(backend: str) -> Mapping[str, Outcome]:
    """The attempts of a user without rights, if we are root and the system's Python can run them."""
    with folder_of_nobody() as folder:
        done = run_as_nobody(("-m", "tests.contract.breach_runner", backend, folder), folder)
        assert done.returncode == 0, done.stderr.decode()
    return msgspec.json.decode(done.stdout, type=dict[str, Outcome])


def test_every_attempt_succeeds_on_the_host(tmp_path_factory):
    outcomes = run("host", tmp_path_factory.mktemp("b"))
    assert [f"{name}: {outcome.output}" for name, outcome in outcomes.items() if not outcome.happened] == []
    assert [*outcomes] and {*outcomes} == {breach.name for breach in chosen("host")}


@pytest.mark.parametrize("backend", SANDBOXES)
def test_every_attempt_fails_in_the_sandbox(backend, tmp_path_factory):
    kind = backend.removesuffix(AS_USER)
    outcomes = run(kind, tmp_path_factory.mktemp("b")) if kind == backend else run_attempts_as_nobody(kind)
    happened = {name: outcome for name, outcome in outcomes.items() if outcome.happened}
    assert [
        f"{name}: {each.output}" for name, each in happened.items() if name not in KNOWN_GAPS.get(backend, {})
    ] == []
    assert {*outcomes} == {breach.name for breach in chosen(backend)}


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
