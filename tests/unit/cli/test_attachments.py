"""Images and piped text reach the question as what they are, or are refused with a reason."""

import io
import os
from pathlib import Path

import pytest

from alipes.cli import attachments
from alipes.cli.attachments import Piped, read_image, read_piped, with_context
from alipes.kernel.errors import ConfigError
from alipes.kernel.messages import Image, image_type

PNG = b"\x89PNG\r\n\x1a\n" + b"\0" * 20


def piped(tmp_path: Path, data: bytes) -> Piped:
    (tmp_path / "in").write_bytes(data)
    with (tmp_path / "in").open("rb") as stream:
        return read_piped(stream)


@pytest.mark.parametrize(
    ("data", "kind"),
    [
        (PNG, "image/png"),
        (b"\xff\xd8\xff\xe0rest", "image/jpeg"),
        (b"GIF89a...", "image/gif"),
        (b"RIFF\x10\0\0\0WEBPVP8 ", "image/webp"),
        (b"RIFF\x10\0\0\0WAVEfmt ", ""),
        (b"<svg>", ""),
        (b"", ""),
    ],
)
def test_an_image_is_known_by_its_first_bytes_not_by_its_name(data, kind):
    assert image_type(data) == kind


def test_an_image_file_is_read(tmp_path):
    (tmp_path / "picture.txt").write_bytes(PNG)
    assert read_image(str(tmp_path / "picture.txt")) == Image("image/png", PNG)


def test_a_file_that_cannot_be_shown_is_refused_by_name(tmp_path):
    (tmp_path / "x.png").write_text("no image")
    with pytest.raises(ConfigError, match=r"x\.png: not a PNG"):
        read_image(str(tmp_path / "x.png"))
    with pytest.raises(ConfigError, match=r"y\.png: No such file"):
        read_image(str(tmp_path / "y.png"))
    with pytest.raises(ConfigError, match="directory"):
        read_image(str(tmp_path))


def test_an_image_that_is_too_large_is_refused(tmp_path):
    with (tmp_path / "big.png").open("wb") as file:
        file.write(PNG)
        file.truncate(attachments.IMAGE_LIMIT + 1)
    with pytest.raises(ConfigError, match="larger than 20,000,000 bytes"):
        read_image(str(tmp_path / "big.png"))


def test_piped_text_is_read_and_broken_letters_do_not_hurt(tmp_path):
    assert piped(tmp_path, "grün\n".encode()) == Piped("grün\n")
    assert piped(tmp_path, b"gr\xfcn") == Piped("gr\N{REPLACEMENT CHARACTER}n")
    assert piped(tmp_path, b"") == Piped()


def test_a_piped_image_is_shown_and_other_binary_is_refused(tmp_path):
    assert piped(tmp_path, PNG) == Piped(image=Image("image/png", PNG))
    with pytest.raises(ConfigError, match="neither text nor"):
        piped(tmp_path, b"\x7fELF\0\0")


def test_too_much_piped_text_is_refused(tmp_path):
    with pytest.raises(ConfigError, match="more than 8,000,000"):
        piped(tmp_path, b"x" * (attachments.TEXT_LIMIT + 1))


def test_who_left_a_pipe_open_is_told_what_we_wait_for(capsys, monkeypatch):
    monkeypatch.setattr(attachments, "PATIENCE", 0.0)
    reading, writing = os.pipe()

    class Late(io.FileIO):
        def read(self, count: int = -1) -> bytes:
            os.write(writing, b"late")
            os.close(writing)
            return super().readall()

    with Late(reading) as stream:
        assert read_piped(stream) == Piped("late")
    assert "waiting for standard input" in capsys.readouterr().err


def test_context_follows_the_prompt_in_a_marked_block():
    assert with_context("sum this up", "1\n2\n") == "sum this up\n\n<stdin>\n1\n2\n</stdin>"
    assert with_context("hello", " \n") == "hello"
    assert with_context("", "hello\n") == "hello\n"
