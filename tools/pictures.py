"""The pictures of the terminal in docs/pictures, from a real run: the program, its tools, a scripted model.

python tools/pictures.py
"""

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).parents[1]
OUT = ROOT / "docs" / "pictures"
QUESTION = "the test fails, can you fix it?"
CODE = '''\
def area(width, height):
    """The area of a rectangle."""
    return width + height
'''
TEST = """\
import unittest

from shapes import area


class Shapes(unittest.TestCase):
    def test_area(self):
        self.assertEqual(area(3, 4), 12)
"""
ANSWER = """\
The test passes now. `area` **added** the sides where it should multiply them:

| call | before | now |
|---|---|---|
| `area(3, 4)` | 7 | 12 |

Nothing else uses it, so I changed no other file.
"""
RUN = {"name": "terminal", "args": {"command": "python3 -m unittest"}}
MEND = {
    "name": "patch",
    "args": {
        "mode": "replace",
        "path": "shapes.py",
        "old_string": "width + height",
        "new_string": "width * height",
    },
}
PLAN = [
    {
        "type": "calls",
        "calls": [RUN],
        "text": "I run the test first.",
        "thinking": "A failing test. Before I guess, I should see how it fails.",
        "usage": {"input": 5200, "output": 90},
    },
    {"type": "calls", "calls": [MEND], "usage": {"input": 5400, "output": 120}},
    {"type": "calls", "calls": [RUN], "usage": {"input": 5700, "output": 60}},
    {"type": "say", "text": ANSWER, "pieces": 40, "usage": {"input": 5900, "output": 150}},
]
CONFIG = """\
model = "demo/scripted"
[providers.demo]
base_url = "http://127.0.0.1:{port}/v1"
[models."demo/scripted"]
window = 64000
price_input = 3.0
price_output = 15.0
"""


def main() -> None:
    OUT.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        server = _serve(folder)
        try:
            for theme, colours in (("dark", "15;0"), ("light", "0;15")):
                _take(folder, theme, colours)
        finally:
            server.kill()
            server.wait()


def _serve(folder: Path) -> "subprocess.Popen[str]":
    (folder / "plan.json").write_text(json.dumps(PLAN))
    files = ["--port-file", str(folder / "port"), "--plan", str(folder / "plan.json")]
    server = subprocess.Popen(
        [sys.executable, "-m", "tests.world.model_server", *files],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert server.stdout is not None
    (folder / "port").write_text(server.stdout.readline())
    return server


def _take(folder: Path, theme: str, colours: str) -> None:
    person = folder / theme
    project = person / "project"
    project.mkdir(parents=True)
    (project / "shapes.py").write_text(CODE)
    (project / "test_shapes.py").write_text(TEST)
    home = person / ".alipes"
    home.mkdir(mode=0o700)
    (home / "config.toml").write_text(CONFIG.format(port=int((folder / "port").read_text())))
    (home / "programs-told").write_text("rg\nbwrap\ngit\n")
    kept = {key: os.environ[key] for key in ("PATH", "LANG") if key in os.environ}
    env = {**kept, "HOME": str(person), "COLORFGBG": colours, "PYTHONPATH": str(ROOT / "src")}
    picture = [sys.executable, str(ROOT / "tools" / "picture.py"), str(OUT / f"terminal-{theme}.svg")]
    steps = ["--until", "answers.", "--type", QUESTION, "--until", "no other file"]
    program = ["--", sys.executable, "-m", "alipes"]
    size = ["--size", "88x40", "--theme", theme]
    subprocess.run([*picture, *size, *steps, *program], env=env, cwd=project, check=True)


if __name__ == "__main__":
    main()
