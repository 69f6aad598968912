"""The front page tells the truth: its links lead somewhere, its commands exist, and it fits on one screen."""

import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "README.md").read_text()


def test_every_link_leads_somewhere():
    pictures = re.findall(r'src(?:set)?="([^"]+)"', PAGE)
    assert len(pictures) == 2, "one light, one dark"
    for target in [*pictures, *re.findall(r"\]\((?!http)([^)#]+)\)", PAGE)]:
        assert (ROOT / target).exists(), target


def test_every_make_target_exists():
    made = (ROOT / "Makefile").read_text()
    for target in re.findall(r"make (\w+)", PAGE):
        assert re.search(rf"^{target}:", made, re.MULTILINE), target


def test_every_command_is_one_we_have():
    told = subprocess.run(
        [sys.executable, "-m", "alipes", "--help"], capture_output=True, text=True, check=True, cwd=ROOT
    ).stdout
    for command in re.findall(r"^(?:.*\| )?alipes (\w+)", PAGE, re.MULTILINE):
        assert re.search(rf"\b{command}\b", told), command


def test_it_is_one_screen():
    assert PAGE.count("\n") <= 55
