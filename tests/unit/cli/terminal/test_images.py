"""Pictures in terminals that draw them: the right bytes, in as many rows as they take; else the path alone."""

import base64
import io
import re
from pathlib import Path

import PIL.Image
import pytest

from alipes.cli.terminal import images
from alipes.cli.terminal.screen_diff import Canvas, height, plain
from alipes.cli.terminal.styles import clipped, look_around, make_look
from alipes.cli.terminal.tool_view import finished
from alipes.config.environment import Variables
from alipes.kernel.messages import ToolCall, ToolResult


def saved(folder, name="a.png", size=(200, 100), colour="red"):
    path = folder / name
    PIL.Image.new("RGB", size, colour).save(path)
    return str(path)


@pytest.mark.parametrize("way", ["kitty", "iterm", "sixel"])
def test_a_picture_takes_its_rows_and_no_columns(tmp_path, way):
    rows = images.rows(saved(tmp_path), way, 80)
    assert len(rows) == 5 and rows[:4] == [""] * 4  # twenty columns wide, of places twice as high as wide
    assert plain(rows[4]).strip() == "" and height(rows[4], 80) == 1 and clipped(rows[4], 10) == rows[4]
    assert rows[4].startswith("\x1b7\x1b[4A") and rows[4].endswith("\x1b8")
    assert Canvas(80, 24).paint(rows, ["x"], (0, 0)).count(rows[4]) == 1


def test_the_bytes_are_those_of_the_file(tmp_path):
    path = saved(tmp_path)
    data = Path(path).read_bytes()
    kitty = images.rows(path, "kitty", 80)[-1]
    assert base64.b64decode("".join(re.findall(r"\x1b_G[^;]*;([^\x1b]*)", kitty))) == data
    assert "c=20,r=5" in kitty and "C=1" in kitty
    iterm = images.rows(path, "iterm", 80)[-1]
    assert base64.b64decode(re.search(r":([A-Za-z0-9+/=]+)\x07", iterm)[1]) == data


def test_a_large_picture_is_sent_in_parts_of_which_the_last_says_so(tmp_path):
    noise = PIL.Image.effect_noise((300, 300), 90)
    noise.save(tmp_path / "n.png")
    parts = re.findall(r"\x1b_G([^;]*);", images.rows(str(tmp_path / "n.png"), "kitty", 80)[-1])
    assert len(parts) > 3 and all(each.endswith("m=1") for each in parts[:-1]) and parts[-1] == "m=0"


def test_other_kinds_are_turned_into_what_the_terminal_takes(tmp_path):
    drawn = images.rows(saved(tmp_path, "a.jpg"), "kitty", 80)[-1]
    data = base64.b64decode("".join(re.findall(r"\x1b_G[^;]*;([^\x1b]*)", drawn)))
    assert PIL.Image.open(io.BytesIO(data)).format == "PNG"


def test_points_are_drawn_by_sixes_and_can_be_read_back(tmp_path):
    drawn = images.rows(saved(tmp_path, size=(40, 40), colour=(255, 0, 0)), "sixel", 80)[-1]
    body = drawn[drawn.index("q") + 1 : drawn.rindex("\x1b\\")]
    assert body.startswith('"1;1;40;40') and ";2;100;0;0" in body
    assert body.count("-") == 7 and "!40~" in body


@pytest.mark.parametrize(
    ("size", "rows"), [((4000, 4000), 20), ((100, 9000), 20), ((9000, 10), 1), ((1, 1), 1)]
)
def test_no_picture_takes_more_than_its_room(tmp_path, size, rows):
    assert len(images.rows(saved(tmp_path, size=size), "iterm", 80)) == rows


def test_what_cannot_be_drawn_is_left_out(tmp_path):
    (tmp_path / "no.png").write_bytes(b"nothing")
    (tmp_path / "a.txt").write_text("words")
    for path in ("no.png", "a.txt", "missing.png"):
        assert images.rows(str(tmp_path / path), "kitty", 80) == []
    assert images.rows(saved(tmp_path), "", 80) == []


def test_a_call_that_made_a_picture_shows_where_it_is_and_draws_it(tmp_path):
    path = saved(tmp_path)
    call, result = ToolCall("c", "image_generate", {}), ToolResult("c", f"Drawn.\nMEDIA: {path}")
    rows = finished(call, result, 0.0, None, columns=200, look=make_look("dark", pictures="kitty"))
    assert path in rows[1] and "\x1b_G" in rows[-1]
    assert len(finished(call, result, 0.0, None, columns=200, look=make_look("dark"))) == 2


@pytest.mark.parametrize(
    ("variables", "way"),
    [
        ({"TERM": "xterm-kitty"}, "kitty"),
        ({"TERM": "xterm-256color", "TERM_PROGRAM": "iTerm.app"}, "iterm"),
        ({"TERM": "foot"}, "sixel"),
        ({"TERM": "xterm-256color"}, ""),
        ({"TERM": "xterm-kitty", "TMUX": "x"}, ""),
        ({"TERM": "screen-256color", "KITTY_WINDOW_ID": "1"}, ""),
    ],
)
def test_the_way_is_known_by_the_terminals_name(variables, way):
    assert look_around(Variables(variables, Path("/none"))).pictures == way
