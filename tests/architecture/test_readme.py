"""The README is true: its links and pictures exist, its commands work, and it fits on one screen."""

import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "README.md").read_text()
MAX_LINES = 55


def test_every_link_and_picture_has_a_target():
    pictures = re.findall(r'src(?:set)?="([^"]+)"', PAGE)
    assert len(pictures) == 2, "one light, one dark"
    for target in [*pictures, *re.findall(r"\]\((?!http)([^)#]+)\)", PAGE)]:
        assert (ROOT / target).exists(), target


def test_it_shows_the_terminal_a_chat_and_doctor():
    shown = {Path(name).stem.partition("-")[0] for name in re.findall(r"docs/pictures/[\w-]+\.svg", PAGE)}
    assert {"terminal", "chat", "doctor"} <= shown


def test_every_make_target_exists():
    makefile = (ROOT / "Makefile").read_text()
    for target in re.findall(r"make (\w+)", PAGE):
        assert re.search(rf"^{target}:", makefile, re.MULTILINE), target


def test_every_command_exists():
    text = subprocess.run(
        [sys.executable, "-m", "alipes", "--help"], capture_output=True, text=True, check=True, cwd=ROOT
    ).stdout
    for command in re.findall(r"^(?:.*\| )?alipes (\w+)", PAGE, re.MULTILINE):
        assert re.search(rf"\b{command}\b", text), command


def test_every_extra_that_is_installed_exists():
    project = (ROOT / "pyproject.toml").read_text()
    extras = [name for names in re.findall(r"'\.\[([\w,]+)\]'", PAGE) for name in names.split(",")]
    assert extras and all(re.search(rf"^{name} = \[", project, re.MULTILINE) for name in extras)


def test_it_is_one_screen():
    assert PAGE.count("\n") <= MAX_LINES
