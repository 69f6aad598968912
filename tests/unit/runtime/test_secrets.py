"""What others can read of a process: neither what it was started with, nor, unless they are root, its memory."""

import os
import subprocess
import sys

import pytest

from alipes.config.loader import load_settings
from alipes.runtime.redaction import make_mask
from alipes.tools.common import child_environment

by_proc = pytest.mark.skipif(sys.platform != "linux", reason="by /proc")
CANARY = "canary-started-with-51ac"
WITHOUT_RIGHTS = "import ctypes; [ctypes.CDLL(None).prctl(24, number, 0, 0, 0) for number in range(64)]"
"""Root without what makes it root: no capability is left after the next `exec`."""
PROGRAM = f"""
import os, subprocess, sys
from alipes.config.environment import process_environment, move_secrets_off_stack
from alipes.runtime.process_setup import protect_memory, wipe_environment
names = move_secrets_off_stack(lambda name, value: "canary" in value)
assert wipe_environment(names) and names == ["THE_KEY"], names
if "open" not in sys.argv: assert protect_memory()
assert process_environment()["THE_KEY"] == os.environ["THE_KEY"] == {CANARY!r}
reported = subprocess.run(["sh", "-c", "echo $THE_KEY $OTHER"], capture_output=True, text=True).stdout.split()
assert reported == [{CANARY!r}, "plain"], "children still inherit it"
looks = "import os; print(open(f'/proc/{{os.getppid()}}/environ', 'rb').read())"
print(subprocess.run([sys.executable, "-c", looks], capture_output=True, text=True, env={{}}))
looks = "import os; open(f'/proc/{{os.getppid()}}/mem', 'rb'); print('in')"
print(subprocess.run([sys.executable, "-c", looks], capture_output=True, text=True, env={{}}))
"""


def run(*words: str, drop: bool = False) -> str:
    program = [sys.executable, "-c", PROGRAM, *words]
    if drop:
        program = [
            sys.executable,
            "-c",
            f"{WITHOUT_RIGHTS}; import os, sys; os.execv(sys.argv[1], sys.argv[1:])",
            *program,
        ]
    env = {**os.environ, "THE_KEY": CANARY, "OTHER": "plain"}
    done = subprocess.run(program, env=env, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout


@by_proc
def test_a_child_does_not_see_what_we_were_started_with_not_even_as_root():
    seen = run("open")
    assert CANARY not in seen
    assert "OTHER=plain" in seen and "THE_KEY=" + "*" * len(CANARY) in seen


@by_proc
def test_a_child_that_is_not_root_looks_neither_into_our_environment_nor_our_memory():
    seen = run(drop=True)
    assert CANARY not in seen and "OTHER=plain" not in seen
    assert seen.count("PermissionError") == 2


@pytest.mark.parametrize(
    "name",
    ["PGPASSWORD", "MYSQL_PWD", "DB_PASS", "SSH_KEY_PASSPHRASE", "PRIVATE_KEY_PEM", "GITHUB_TOKEN", "OPENAI_API_KEY"],
)
def test_what_is_named_like_a_secret_is_no_childs(name):
    assert name not in child_environment({name: "some-value"})


def test_what_only_sounds_like_one_stays():
    plain = {"PWD": "/work", "OLDPWD": "/", "KEYBOARD": "de", "PASSAGE": "x", "SSH_AUTH_SOCK": "/tmp/agent"}
    assert plain.items() <= child_environment(plain).items()


def test_the_password_in_an_address_is_masked_and_the_address_kept(tmp_path):
    environ = {"DATABASE_URL": "postgres://me:canary-database@db/x", "HTTPS_PROXY": "http://me:canary-proxy@p:1"}
    settings = load_settings(tmp_path, environ)
    assert child_environment(environ, settings.secrets()).keys() >= environ.keys()
    assert make_mask(settings.secrets())(str(environ)).count("canary") == 0
