"""Commands of the corpus that delete, change or print something of the home do not succeed in the sandbox."""

import json
from pathlib import Path
from shlex import quote

import pytest

from alipes.runtime.sandbox.backend import CommandScope
from tests.world.environment import ROOT
from tests.world.sandboxes import open_backend, open_machine

CORPUS = ROOT / "tests" / "corpora" / "shell-effects.tsv"
CANARY = "canary-7f3a"
RAN = "ended-with"
TOGETHER = 40


def read_commands() -> list[str]:
    lines = [line for line in CORPUS.read_text().splitlines() if line and not line.startswith("#")]
    return [json.loads(line.split("\t")[-1]) for line in lines]


def make_home(home: Path) -> None:
    for name in (".ssh/id_ed25519", ".ssh/id_rsa", ".aws/credentials", ".alipes/.env", ".netrc", "victim/file"):
        file = home / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(f"{CANARY}\n")
    (home / ".bashrc").write_text("# mine\n")
    (home / "sub").mkdir()
    (home / "work" / "sub").mkdir(parents=True)
    (home / "work" / "cdhome.sh").write_text("cd ~\n")
    (home / "work" / ".bashrc").write_text("evil\n")


@pytest.mark.deadline(240)
@pytest.mark.parametrize("name", ["bubblewrap", "landlock"])
async def test_no_command_of_the_corpus_has_an_effect_on_the_home(name, tmp_path):
    home = tmp_path / "home"
    make_home(home)
    commands, workdir = read_commands(), str(home / "work")
    assert len(commands) > 390
    env = {"PATH": "/usr/bin:/bin", "HOME": str(home), "LANG": "C.UTF-8"}
    with open_machine(name, tmp_path / "machine"):
        async with open_backend(name, home=home) as backend:
            for start in range(0, len(commands), TOGETHER):
                group = commands[start : start + TOGETHER]
                script = "\n".join(
                    f"cd {workdir}; timeout -k 1 2 bash -c {quote(each)} </dev/null; echo {RAN} $?" for each in group
                )
                output = b""
                async with backend.open(script, CommandScope("s1", workdir), cwd=workdir, env=env) as child:
                    while piece := await child.read():
                        output += piece
                text = output.decode(errors="replace")
                assert CANARY not in text, group
                assert text.count(RAN) >= len(group) and "timeout: " not in text
                assert (home / "victim" / "file").read_text() == f"{CANARY}\n", group
                assert (home / ".bashrc").read_text() == "# mine\n", group
