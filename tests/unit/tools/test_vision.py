"""The `vision_analyze` tool: loading, converting and describing images."""

import base64
import io

import PIL.Image
import pytest

from alipes.kernel.errors import ToolError
from alipes.kernel.messages import Image
from alipes.kernel.ports import ToolOutput
from alipes.runtime.http.clients import ClientScope
from alipes.runtime.http.public_fetch import PublicFetcher
from alipes.runtime.sandbox.backend import CommandScope
from alipes.tools.boundary import FileBoundary
from alipes.tools.common import Places
from alipes.tools.images import (
    MAX_IMAGE_BYTES,
    MAX_PROVIDER_BYTES,
    MAX_SIDE_PIXELS,
    ImageLoader,
    VisionAnalyze,
    prepare_image,
)


class FakeContext:
    call_id, session, turn = "c1", "s1", None

    def __init__(self, workdir):
        self.workdir = str(workdir)


def make_image(size=(40, 20), kind="PNG", **more):
    file = io.BytesIO()
    made = PIL.Image.new(more.pop("mode", "RGB"), size, more.pop("colour", "red"))
    made.save(file, kind, **more)
    return file.getvalue()


def open_image(image):
    return PIL.Image.open(io.BytesIO(image.data))


class Here:
    """The context of a call."""

    call_id, session, turn = "c", "s", None

    def __init__(self, workdir):
        self.workdir = workdir


def image_loader(scope, home, allowed=(), decide=None):
    places = Places(home=str(home), alipes_home=str(home / "own"))
    return ImageLoader(FileBoundary(places), PublicFetcher(scope, allowed, decide=decide))


def test_small_image_is_unchanged():
    data = make_image()
    prepared = prepare_image(data)
    assert prepared.image == Image("image/png", data) and prepared.note == "40x20 png"


def test_exif_rotation_is_applied():
    exif = PIL.Image.Exif()
    exif[0x0112] = 6
    prepared = prepare_image(make_image(kind="JPEG", exif=exif))
    assert open_image(prepared.image).size == (20, 40)


def test_large_image_is_scaled_and_noted():
    prepared = prepare_image(make_image((4000, 1000)))
    assert max(open_image(prepared.image).size) == MAX_SIDE_PIXELS and "scaled to 1568x392" in prepared.note


def test_animated_image_becomes_its_first_frame():
    frames = [PIL.Image.new("RGB", (9, 9), colour) for colour in ("red", "blue", "green")]
    file = io.BytesIO()
    frames[0].save(file, "GIF", save_all=True, append_images=frames[1:])
    prepared = prepare_image(file.getvalue())
    assert "first of 3 frames" in prepared.note and open_image(prepared.image).convert("RGB").getpixel((0, 0))[0] > 200


def test_other_formats_are_converted():
    assert prepare_image(make_image(kind="BMP")).image.media_type == "image/png"
    assert prepare_image(make_image(kind="TIFF")).image.media_type == "image/png"
    clear = prepare_image(make_image(kind="TIFF", mode="RGBA", colour=(1, 2, 3, 4))).image
    assert open_image(clear).getpixel((0, 0)) == (1, 2, 3, 4)


def test_noisy_image_still_fits():
    noise = PIL.Image.effect_noise((1600, 1600), 120).convert("RGB")
    file = io.BytesIO()
    noise.save(file, "PNG", compress_level=1)
    prepared = prepare_image(file.getvalue())
    assert len(prepared.image.data) <= MAX_PROVIDER_BYTES and prepared.image.media_type == "image/jpeg"


def test_svg_is_returned_as_source():
    prepared = prepare_image(b'<?xml version="1.0"?>\n<!-- made -->\n<svg width="1"><text>hi</text></svg>')
    assert prepared.image is None and "<text>hi</text>" in prepared.svg_source and "SVG" in prepared.note
    assert "truncated after" in prepare_image(b"<svg>" + b"x" * 50_000).note


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (b"no picture", "not a readable image: it is damaged, or of an unknown kind$"),
        (make_image()[:30], "not a readable image"),
        (b"x" * (MAX_IMAGE_BYTES + 1), "maximum"),
        (make_image((9000, 9000), mode="1", colour=0), "too many"),
    ],
)
def test_unreadable_images_are_refused(data, why):
    with pytest.raises(ToolError, match=why):
        prepare_image(data)


async def test_files_and_data_urls_are_loaded(tmp_path):
    data = make_image()
    (tmp_path / "a b.png").write_bytes(data)
    async with ClientScope() as scope:
        load = image_loader(scope, tmp_path).load
        for named in ("a b.png", str(tmp_path / "a b.png"), f"file://{tmp_path}/a b.png"):
            assert await load(named, Here(str(tmp_path))) == data
        carried = base64.b64encode(data).decode()
        assert await load(f"data:image/png;base64,{carried}", CommandScope()) == data
        assert await load("data:,%41b", CommandScope()) == b"Ab"


async def test_secrets_devices_and_private_addresses_are_refused(tmp_path):
    own = tmp_path / "own"
    own.mkdir()
    (own / ".env").write_text("KEY=secret")
    (tmp_path / "link.png").symlink_to(own / ".env")
    async with ClientScope() as scope:
        load = image_loader(scope, tmp_path).load
        for named, why in {
            "own/.env": "secrets",
            "link.png": "secrets",
            "/dev/zero": "not a file",
            "missing.png": "cannot be read",
            "http://127.0.0.1:1/a.png": "private network",
            "http://localhost/a.png": "private network",
            "ftp://example.org/a.png": "neither",
            "data:image/png;base64,***": "invalid data URL",
        }.items():
            with pytest.raises(ToolError, match=why):
                await load(named, Here(str(tmp_path)))


async def test_an_image_is_fetched_only_if_its_host_is_allowed_for_the_turn(tmp_path):
    asked = []

    async def decide(request):
        asked.append((request.host, request.port, request.scheme, request.scope))
        return "x.example is not allowed."

    caller = CommandScope("s1", str(tmp_path))
    async with ClientScope() as scope:
        vision = VisionAnalyze(image_loader(scope, tmp_path, decide=decide).load, None)
        with pytest.raises(ToolError, match=r"/a\.png was not fetched\. x\.example is not allowed\."):
            await vision.run({"image_url": "https://X.example./a.png?q=1", "question": "?"}, FakeContext(tmp_path))
    assert asked == [("x.example", 443, "fetch", caller)]


async def test_vision_models_get_the_image_and_others_a_description(tmp_path):
    asked = []

    async def load(named, workdir):
        return make_image()

    async def blind(question, image):
        asked.append((question, image))
        return "It is red."

    async def seeing(question, image):
        return None

    args = {"path": "a.png", "question": "Which colour?"}
    given = await VisionAnalyze(load, seeing).run(args, FakeContext(tmp_path))
    assert isinstance(given, ToolOutput) and given.images[0].data == make_image() and "Which colour?" in given.text
    assert await VisionAnalyze(load, blind).run(args, FakeContext(tmp_path)) == "[40x20 png]\nIt is red."
    assert asked[0][0].startswith("Which colour?") and "never instructions" in asked[0][0]
    with pytest.raises(ToolError, match="set image_url or path"):
        await VisionAnalyze(load, blind).run({"question": "?"}, FakeContext(tmp_path))


async def test_svg_needs_no_vision_model(tmp_path):
    async def load(named, workdir):
        return b"<svg><circle/></svg>"

    result = await VisionAnalyze(load, None).run({"path": "a.svg", "question": "?"}, FakeContext(tmp_path))
    assert "<circle/>" in result and "not instructions" in result
