"""Inline images: the right bytes in the right number of rows."""

import base64
import io
import re
from pathlib import Path

import PIL.Image
import pytest

from alipes.cli.terminal.transcript.tool_view import CallRecord, render_finished
from alipes.config.environment import Variables
from alipes.console import images
from alipes.console.diff_view import DrawContext
from alipes.console.screen_diff import LiveScreen, row_height, strip_escapes
from alipes.console.styles import clip_row, detect_features, make_style
from alipes.kernel.messages import ToolCall, ToolResult


def saved(folder, name="a.png", size=(200, 100), colour="red"):
    path = folder / name
    PIL.Image.new("RGB", size, colour).save(path)
    return str(path)


@pytest.mark.parametrize("way", ["kitty", "iterm", "sixel"])
def test_an_image_takes_rows_and_no_columns(tmp_path, way):
    rows = images.render_image(saved(tmp_path), way, 80)
    assert len(rows) == 5 and rows[:4] == [""] * 4  # twenty columns wide, of places twice as high as wide
    assert strip_escapes(rows[4]).strip() == "" and row_height(rows[4], 80) == 1 and clip_row(rows[4], 10) == rows[4]
    assert rows[4].startswith("\x1b7\x1b[4A") and rows[4].endswith("\x1b8")
    assert LiveScreen(80, 24).paint(rows, ["x"], (0, 0)).count(rows[4]) == 1


def test_the_bytes_are_those_of_the_file(tmp_path):
    path = saved(tmp_path)
    data = Path(path).read_bytes()
    kitty = images.render_image(path, "kitty", 80)[-1]
    assert base64.b64decode("".join(re.findall(r"\x1b_G[^;]*;([^\x1b]*)", kitty))) == data
    assert "c=20,r=5" in kitty and "C=1" in kitty
    iterm = images.render_image(path, "iterm", 80)[-1]
    assert base64.b64decode(re.search(r":([A-Za-z0-9+/=]+)\x07", iterm)[1]) == data


def test_a_large_image_is_sent_in_parts_and_the_last_is_marked(tmp_path):
    noise = PIL.Image.effect_noise((300, 300), 90)
    noise.save(tmp_path / "n.png")
    parts = re.findall(r"\x1b_G([^;]*);", images.render_image(str(tmp_path / "n.png"), "kitty", 80)[-1])
    assert len(parts) > 3 and all(each.endswith("m=1") for each in parts[:-1]) and parts[-1] == "m=0"


def test_other_formats_are_converted(tmp_path):
    drawn = images.render_image(saved(tmp_path, "a.jpg"), "kitty", 80)[-1]
    data = base64.b64decode("".join(re.findall(r"\x1b_G[^;]*;([^\x1b]*)", drawn)))
    assert PIL.Image.open(io.BytesIO(data)).format == "PNG"


def test_sixel_output_can_be_decoded(tmp_path):
    drawn = images.render_image(saved(tmp_path, size=(40, 40), colour=(255, 0, 0)), "sixel", 80)[-1]
    body = drawn[drawn.index("q") + 1 : drawn.rindex("\x1b\\")]
    assert body.startswith('"1;1;40;40') and ";2;100;0;0" in body
    assert body.count("-") == 7 and "!40~" in body


@pytest.mark.parametrize(("size", "rows"), [((4000, 4000), 20), ((100, 9000), 20), ((9000, 10), 1), ((1, 1), 1)])
def test_no_image_exceeds_its_space(tmp_path, size, rows):
    assert len(images.render_image(saved(tmp_path, size=size), "iterm", 80)) == rows


def test_an_image_that_cannot_be_drawn_is_omitted(tmp_path):
    (tmp_path / "no.png").write_bytes(b"nothing")
    (tmp_path / "a.txt").write_text("words")
    for path in ("no.png", "a.txt", "missing.png"):
        assert images.render_image(str(tmp_path / path), "kitty", 80) == []
    assert images.render_image(saved(tmp_path), "", 80) == []


def test_a_call_that_made_an_image_shows_its_path_and_draws_it(tmp_path):
    path = saved(tmp_path)
    call, result = ToolCall("c", "image_generate", {}), ToolResult("c", "Drawn.", files=(path,))
    rows = render_finished(CallRecord(call, result), DrawContext(200, make_style("dark", images="kitty")))[0]
    assert path in rows[1] and "\x1b_G" in rows[-1]
    assert len(render_finished(CallRecord(call, result), DrawContext(200, make_style("dark")))[0]) == 2


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
def test_the_protocol_is_detected_by_the_name_of_the_terminal(variables, way):
    assert detect_features(Variables(variables, Path("/none"))).images == way
