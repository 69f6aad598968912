"""A coding task of thirty steps in an ordinary Python repository: with default settings, one question."""

import json
import os
import shutil
import subprocess
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from alipes.kernel.turns import ApprovalAsked, ToolFinished
from alipes.testing import open_agent
from alipes.testing.scripted_model import call
from alipes.tools import backends
from tests.e2e.test_everyday_tasks import GIT_CONFIG, SYSTEM_PATH, open_index
from tests.world.environment import require
from tests.world.sandboxes import scratch_removed

PYTHON = "/usr/bin/python3"
PYTEST = ("pytest", "_pytest", "pluggy", "iniconfig", "packaging", "pygments")
FILES = {
    "README.md": "# calc\n\nAdds and multiplies. Tests: `.venv/bin/python -m pytest`.\n",
    "pyproject.toml": '[project]\nname = "calc"\nversion = "1.0"\n\n[tool.pytest.ini_options]\npythonpath = ["src"]\n',
    ".gitignore": ".venv/\nnode_modules/\n__pycache__/\n.pytest_cache/\n",
    ".github/workflows/ci.yml": "on: push\njobs: {}\n",
    "src/calc/__init__.py": "from calc.core import add, multiply\n",
    "src/calc/core.py": "def add(a, b):\n    return a - b\n\n\ndef multiply(a, b):\n    return a * b\n",
    "src/calc/cli.py": "import sys\n\nfrom calc.core import add\n\nprint(add(int(sys.argv[1]), int(sys.argv[2])))\n",
    "tests/test_core.py": "from calc import add\n\n\ndef test_add():\n    assert add(1, 2) == 3\n",
    "web/package.json": json.dumps(
        {"name": "web", "scripts": {"pretest": "echo before", "test": "node test.js", "posttest": "echo after"}}
    ),
    "web/test.js": "if (require('./node_modules/left') !== 1) process.exit(1)\nconsole.log('web is fine')\n",
    "web/node_modules/left/index.js": "module.exports = 1\n",
}
VENV = ".venv/bin/python"


def make_repository(repo: Path, home: Path) -> None:
    for path, text in FILES.items():
        (repo / path).parent.mkdir(parents=True, exist_ok=True)
        (repo / path).write_text(text)
    subprocess.run([PYTHON, "-m", "venv", "--without-pip", repo / ".venv"], check=True)
    packages = next((repo / ".venv/lib").iterdir()) / "site-packages"
    for name in PYTEST:
        folder = Path(__import__(name).__file__ or "").parent
        shutil.copytree(folder, packages / name, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(Path(__import__("_pytest").__file__ or "").parents[1] / "py.py", packages)
    for command in ("init -q -b main", "add -A", "commit -qm start"):
        subprocess.run(["git", *command.split()], cwd=repo, check=True, env={**os.environ, "HOME": str(home)})


def run(command: str, **more):
    return call("terminal", command=command, **more)


def make_steps(index: str) -> list:
    """Calls with a text of their result."""
    host = urlsplit(index).hostname
    todo = [{"id": each, "content": each, "status": "pending"} for each in ("fix add", "write tests")]
    core = "src/calc/core.py"
    install = f"python3 -m pip -q --python {VENV} install --index-url {index} --trusted-host {host} tiny"
    return [
        (call("read_file", path="README.md"), "Adds and multiplies"),
        (call("read_file", path="pyproject.toml"), "pythonpath"),
        (call("read_file", path=core), "return a - b"),
        (call("read_file", path="src/calc/cli.py"), "sys.argv"),
        (call("read_file", path="tests/test_core.py"), "test_add"),
        (call("search_files", pattern="def add"), core),
        (call("search_files", pattern="import add", path="src"), "cli.py"),
        (run(f"{VENV} -m pytest -q"), "1 failed"),
        (call("todo", todos=todo), "fix add"),
        (call("patch", mode="replace", path=core, old_string="return a - b", new_string="return a + b"), ""),
        (call("patch", mode="replace", path="src/calc/__init__.py", old_string="multiply\n", new_string="multiply, subtract\n"), ""),
        (call("write_file", path="src/calc/cli.py", content=FILES["src/calc/cli.py"] + 'print("done")\n'), ""),
        (run(f"{VENV} -m pytest -q tests/test_core.py::test_add > out.txt; tail -3 out.txt"), "1 error"),
        (call("read_file", path="out.txt"), "subtract"),
        (call("patch", mode="replace", path=core, old_string="def multiply", new_string="def subtract(a, b):\n  return a - b\n\n\ndef multiply"), ""),
        (run(f"rm out.txt; {VENV} -m pytest -q"), "1 passed"),
        (run(install, timeout=120), "exit code 0"),
        (call("write_file", path="tests/test_more.py",
              content="import tiny\nfrom calc import multiply, subtract\n\n\ndef test_more():\n    assert subtract(multiply(tiny.VALUE, 2), 4) == 80\n"), ""),
        (run(f"sed -i 's/^  return/    return/' {core} && {VENV} -m compileall -q src"), "exit code 0"),
        (run(f"{VENV} -m pytest -q"), "2 passed"),
        (run("git diff"), "+    return a + b"),
        (run("git add -A && git commit -qm 'Fix add' && git log --oneline"), "Fix add"),
        (run("git switch -qc feature && echo >>README.md && git commit -qam 'More words'"), "exit code 0"),
        (run("git switch -q main && echo '# notes' >NOTES.md && git add NOTES.md && git commit -qm Notes"), "exit code 0"),
        (run("git switch -q feature && git rebase -q main"), "exit code 0"),
        (run("git switch -q main && git merge -q feature && git branch -d feature"), "Deleted branch feature"),
        (run("npm test", workdir="web"), "web is fine"),
        (run("rm -rf web/node_modules && ls web"), "package.json"),
        (call("write_file", path="CHANGELOG.md", content="# 1.1\n\n- `add` adds.\n"), ""),
        (run("git add -A && git commit -qm 'Add the changelog' && git status --short && git log --oneline | wc -l"), "5"),
    ]  # fmt: skip


@pytest.mark.parametrize("sandbox", ["bubblewrap", "landlock"])
async def test_a_coding_task_of_thirty_steps_asks_one_question(tmp_path, monkeypatch, sandbox):
    for program in ("bwrap", "git", "npm", "node") if sandbox == "bubblewrap" else ("git", "npm", "node"):
        require(program)
    if not os.path.exists(PYTHON) or subprocess.run([PYTHON, "-m", "pip", "--version"], check=False).returncode:
        pytest.skip("needs the system's Python with pip")
    home, repo = tmp_path / "home", tmp_path / "home" / "repo"
    home.mkdir()
    (home / ".gitconfig").write_text(GIT_CONFIG)
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.delenv("GIT_CONFIG_GLOBAL")
    monkeypatch.setenv("PATH", SYSTEM_PATH)
    monkeypatch.setattr(backends, "SANDBOXES", (sandbox,))
    make_repository(repo, home)
    monkeypatch.chdir(repo)
    with open_index(tmp_path / "index") as index:
        steps = make_steps(index)
        config = {"fetch": {"allow": [urlsplit(index).netloc]}, "checkpoints": {"enabled": True}}
        async with (
            scratch_removed(home / ".alipes"),
            open_agent(home=home / ".alipes", person="once", config=config) as agent,
        ):
            agent.model.set_script(*(each for each, _ in steps), "| step | result |\n|---|---|\n| tests | pass |")
            reply = await agent.say("Please repair the tests", workdir=str(repo))
    results = [event.result.text for event in reply.of(ToolFinished)]
    wrong = [(str(each), text) for (each, wanted), text in zip(steps, results, strict=True) if wanted not in text]
    assert wrong == []
    assert "| tests | pass |" in reply.text
    [asked] = reply.of(ApprovalAsked)
    assert urlsplit(index).hostname in str(asked)
