"""Pictures from the clipboard and dropped files."""

import stat

import pytest

from alipes.cli.terminal.input.clipboard import mention_pasted_files, save_clipboard_picture
from tests.world.pictures import PNG


@pytest.fixture
def folder(tmp_path):
    for name in ("a.png", "two words.jpg", "notes.txt"):
        (tmp_path / name).write_bytes(PNG)
    return tmp_path


def test_a_dropped_picture_becomes_a_mention(folder):
    assert mention_pasted_files(f"{folder}/a.png") == f"@{folder}/a.png "
    for pasted in (f"{folder}/two words.jpg", f"'{folder}/two words.jpg' ", f"{folder}/two\\ words.jpg"):
        assert mention_pasted_files(pasted) == f'@"{folder}/two words.jpg" '
    assert mention_pasted_files(f"'{folder}/a.png' '{folder}/two words.jpg'") == (
        f'@{folder}/a.png @"{folder}/two words.jpg" '
    )


def test_a_file_url_becomes_a_mention(folder):
    assert mention_pasted_files(f"file://{folder}/two%20words.jpg\n") == f'@"{folder}/two words.jpg" '
    assert mention_pasted_files(f"file://{folder}/notes.txt") == f"@{folder}/notes.txt "


def test_other_texts_are_pasted_as_they_are(folder):
    for text in ("hello", f"{folder}/notes.txt", f"{folder}/none.png", f"see {folder}/a.png", "a.png", "'open", "/\0"):
        assert mention_pasted_files(text) == ""


async def test_the_picture_in_the_clipboard_is_saved_privately(folder):
    program = folder / "bin" / "wl-paste"
    program.parent.mkdir()
    program.write_text(f'#!/bin/sh\ncase "$*" in *image/png*) cat "{folder}/a.png";; esac\n')
    program.chmod(0o755)
    environ = {"PATH": f"{program.parent}:/usr/bin:/bin", "WAYLAND_DISPLAY": "wayland-0"}
    saved = await save_clipboard_picture(folder / "pictures", environ)
    assert saved is not None and saved.read_bytes() == PNG and saved.suffix == ".png"
    assert stat.S_IMODE(saved.stat().st_mode) == 0o600


async def test_without_a_picture_or_a_program_there_is_none(folder):
    program = folder / "bin" / "xclip"
    program.parent.mkdir()
    program.write_text("#!/bin/sh\necho Error: target not available >&2\nexit 1\n")
    program.chmod(0o755)
    for environ in ({"PATH": str(program.parent), "DISPLAY": ":0"}, {"PATH": str(program.parent)}, {"PATH": ""}):
        assert await save_clipboard_picture(folder / "pictures", environ) is None
