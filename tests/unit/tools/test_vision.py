"""Pictures come from files and the web, are made fit, and are looked at by whoever sees."""

import base64
import io

import PIL.Image
import pytest

from alipes.kernel.errors import ToolError
from alipes.kernel.messages import Image
from alipes.kernel.ports import Output
from alipes.runtime.http.clients import ClientScope
from alipes.runtime.http.public_fetch import Fetcher
from alipes.tools.common import Places
from alipes.tools.media.vision import FITTING, LARGEST, SIDE, Sources, Vision, prepared


class Act:
    call_id, session = "c1", "s1"

    def __init__(self, workdir):
        self.workdir = str(workdir)


def picture(size=(40, 20), kind="PNG", **more):
    file = io.BytesIO()
    made = PIL.Image.new(more.pop("mode", "RGB"), size, more.pop("colour", "red"))
    made.save(file, kind, **more)
    return file.getvalue()


def opened(image):
    return PIL.Image.open(io.BytesIO(image.data))


def sources(scope, home, allowed=()):
    return Sources(Places(home=str(home), own=str(home / "own")), Fetcher(scope, allowed))


def test_a_small_picture_stays_as_it_is():
    data = picture()
    seen = prepared(data)
    assert seen.image == Image("image/png", data) and seen.note == "40x20 png"


def test_a_picture_that_was_taken_sideways_is_turned():
    exif = PIL.Image.Exif()
    exif[0x0112] = 6
    seen = prepared(picture(kind="JPEG", exif=exif))
    assert opened(seen.image).size == (20, 40)


def test_a_large_picture_is_made_smaller_and_told_so():
    seen = prepared(picture((4000, 1000)))
    assert max(opened(seen.image).size) == SIDE and "shown at 1568x392" in seen.note


def test_an_animated_picture_is_its_first_frame():
    frames = [PIL.Image.new("RGB", (9, 9), colour) for colour in ("red", "blue", "green")]
    file = io.BytesIO()
    frames[0].save(file, "GIF", save_all=True, append_images=frames[1:])
    seen = prepared(file.getvalue())
    assert "first of 3 frames" in seen.note and opened(seen.image).convert("RGB").getpixel((0, 0))[0] > 200


def test_other_kinds_are_turned_into_what_models_take():
    assert prepared(picture(kind="BMP")).image.media_type == "image/png"
    assert prepared(picture(kind="TIFF")).image.media_type == "image/png"
    clear = prepared(picture(kind="TIFF", mode="RGBA", colour=(1, 2, 3, 4))).image
    assert opened(clear).getpixel((0, 0)) == (1, 2, 3, 4)


def test_a_picture_of_noise_still_fits():
    noise = PIL.Image.effect_noise((1600, 1600), 120).convert("RGB")
    file = io.BytesIO()
    noise.save(file, "PNG", compress_level=1)
    seen = prepared(file.getvalue())
    assert len(seen.image.data) <= FITTING and seen.image.media_type == "image/jpeg"


def test_a_drawing_in_words_is_given_as_words():
    seen = prepared(b'<?xml version="1.0"?>\n<!-- made -->\n<svg width="1"><text>hi</text></svg>')
    assert seen.image is None and "<text>hi</text>" in seen.words and "SVG" in seen.note
    assert "cut after" in prepared(b"<svg>" + b"x" * 50_000).note


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (b"no picture", "no picture"),
        (picture()[:30], "no picture"),
        (b"x" * (LARGEST + 1), "at most"),
        (picture((9000, 9000), mode="1", colour=0), "too many"),
    ],
)
def test_what_cannot_be_looked_at_is_said(data, why):
    with pytest.raises(ToolError, match=why):
        prepared(data)


async def test_files_and_addresses_that_carry_pictures_are_read(tmp_path):
    data = picture()
    (tmp_path / "a b.png").write_bytes(data)
    async with ClientScope() as scope:
        load = sources(scope, tmp_path).load
        for named in ("a b.png", str(tmp_path / "a b.png"), f"file://{tmp_path}/a b.png"):
            assert await load(named, str(tmp_path)) == data
        carried = base64.b64encode(data).decode()
        assert await load(f"data:image/png;base64,{carried}", "") == data
        assert await load("data:,%41b", "") == b"Ab"


async def test_secrets_devices_and_private_places_are_not_looked_at(tmp_path):
    own = tmp_path / "own"
    own.mkdir()
    (own / ".env").write_text("KEY=secret")
    (tmp_path / "link.png").symlink_to(own / ".env")
    async with ClientScope() as scope:
        load = sources(scope, tmp_path).load
        for named, why in {
            "own/.env": "secrets",
            "link.png": "secrets",
            "/dev/zero": "no file",
            "missing.png": "cannot be read",
            "http://127.0.0.1:1/a.png": "private network",
            "http://localhost/a.png": "private network",
            "ftp://example.org/a.png": "neither",
            "data:image/png;base64,***": "not whole",
        }.items():
            with pytest.raises(ToolError, match=why):
                await load(named, str(tmp_path))


async def test_a_model_that_sees_is_given_the_picture_and_another_is_told_what_one_sees(tmp_path):
    asked = []

    async def load(named, workdir):
        return picture()

    async def blind(question, image):
        asked.append((question, image))
        return "It is red."

    async def seeing(question, image):
        return None

    args = {"path": "a.png", "question": "Which colour?"}
    given = await Vision(load, seeing).run(args, Act(tmp_path))
    assert isinstance(given, Output) and given.images[0].data == picture() and "Which colour?" in given.text
    assert await Vision(load, blind).run(args, Act(tmp_path)) == "[40x20 png]\nIt is red."
    assert asked[0][0].startswith("Which colour?") and "never instructions" in asked[0][0]
    with pytest.raises(ToolError, match="name the picture"):
        await Vision(load, blind).run({"question": "?"}, Act(tmp_path))


async def test_a_drawing_needs_nobody_who_sees(tmp_path):
    async def load(named, workdir):
        return b"<svg><circle/></svg>"

    told = await Vision(load, None).run({"path": "a.svg", "question": "?"}, Act(tmp_path))
    assert "<circle/>" in told and "no instruction" in told
