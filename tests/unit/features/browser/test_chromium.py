"""Finding Chromium, and why the browser tools are off."""

import os
from pathlib import Path

import pytest

from alipes.config.settings import Settings
from alipes.features.browser import specs
from alipes.features.browser.chromium import (
    chromium_arguments,
    chromium_environment,
    find_chromium,
    find_obstacle,
    shorten_path,
    uses_sandbox,
)
from alipes.features.browser.doctor import check
from alipes.features.browser.driver import _explain_launch
from alipes.features.browser.sessions import explain_error
from alipes.features.browser.settings import BrowserConfig
from alipes.kernel.errors import ToolError


def install(folder, name):
    path = Path(folder, name)
    path.write_text("#!/bin/sh\n")
    path.chmod(0o755)
    return str(path)


def test_the_setting_comes_before_the_names_on_the_path(tmp_path):
    chrome, own = install(tmp_path, "google-chrome"), install(tmp_path, "my-browser")
    environ = {"PATH": str(tmp_path)}
    assert find_chromium(BrowserConfig(), environ) == chrome
    assert find_chromium(BrowserConfig(), {"PATH": "/nowhere"}) == ""
    chromium = install(tmp_path, "chromium")
    assert find_chromium(BrowserConfig(), environ) == chromium
    assert find_chromium(BrowserConfig(executable=own), environ) == own


def test_what_is_missing_is_named_with_the_remedy(tmp_path):
    pytest.importorskip("playwright")
    assert find_obstacle(BrowserConfig(), {}) == "The browser is switched off: set browser.enabled = true."
    missing = find_obstacle(BrowserConfig(enabled=True), {"PATH": str(tmp_path)})
    assert missing == "No Chromium was found: install Chromium or Chrome, or set browser.executable."
    wrong = find_obstacle(BrowserConfig(enabled=True, executable=str(tmp_path / "no")), {})
    assert wrong.endswith("cannot be run: correct browser.executable.")
    install(tmp_path, "chromium")
    assert find_obstacle(BrowserConfig(enabled=True), {"PATH": str(tmp_path)}) == ""


async def test_a_tool_that_is_off_says_so():
    tools = [specs.BrowserOffTool(spec) for spec in specs.ALL]
    with pytest.raises(ToolError, match=r"browser\.enabled = true"):
        await tools[0].run({"url": "x"}, None)


def test_the_descriptions_stay_short_and_results_are_untrusted():
    assert sum(spec.char_count for spec in specs.ALL) < 3600
    assert all(spec.untrusted for spec in specs.ALL)
    reading = {spec.name.removeprefix("browser_") for spec in specs.ALL if spec.effect == "read"}
    assert reading == {"navigate", "snapshot", "scroll", "back", "screenshot", "console"}


def test_chromiums_sandbox_is_off_for_root_only():
    assert uses_sandbox(BrowserConfig()) is (os.geteuid() != 0)
    assert uses_sandbox(BrowserConfig(sandbox="on")) and not uses_sandbox(BrowserConfig(sandbox="off"))


async def test_the_doctor_says_whether_the_browser_can_be_used(tmp_path):
    pytest.importorskip("playwright")
    program = install(tmp_path, "chromium")
    settings = Settings(home=tmp_path, browser=BrowserConfig(enabled=True, executable=program, sandbox="on"))
    (found,) = await check(settings, None)
    assert (found.state, found.says) == ("ok", program)
    settings = Settings(home=tmp_path, browser=BrowserConfig(enabled=True, executable=program, sandbox="off"))
    (found,) = await check(settings, None)
    assert found.state == "note" and "without its own sandbox" in found.says
    settings = Settings(home=tmp_path, browser=BrowserConfig(enabled=True, executable=str(tmp_path / "no")))
    (found,) = await check(settings, None)
    assert found.state == "wrong"


def test_chromium_gets_no_variables_of_the_user(tmp_path):
    env = chromium_environment({"PATH": "/bin", "HOME": "/home/ann", "AWS_SECRET": "x", "DISPLAY": ":0"}, tmp_path)
    assert env == {"PATH": "/bin", "HOME": str(tmp_path), "TMPDIR": str(tmp_path)}
    assert any(flag.startswith("--host-resolver-rules=MAP * ~NOTFOUND") for flag in chromium_arguments())


def test_a_long_path_gets_a_short_name_that_is_removed(tmp_path):
    folder = tmp_path / ("x" * 80)
    folder.mkdir()
    with shorten_path(folder) as short:
        assert len(str(short)) < 60 and short.samefile(folder)
    assert not short.is_symlink()
    with shorten_path(Path("/tmp")) as same:
        assert same == Path("/tmp")


def test_a_missing_sandbox_of_chromium_is_explained():
    assert "set browser.sandbox = off" in _explain_launch("chromium", "x\n[err] FATAL: No usable sandbox! y")
    assert _explain_launch("/c", "Failed\n - [pid=1][err] FATAL: no way") == "/c could not be started: FATAL: no way"


@pytest.mark.parametrize(
    ("message", "text"),
    [
        ("Page.goto: net::ERR_NAME_NOT_RESOLVED at http://x/", "it failed: the host is unknown"),
        ("Page.goto: net::ERR_STRANGE at http://x/", "it failed: ERR_STRANGE"),
        ("Page.click: Target page, context or browser has been closed", "it failed: the page was closed meanwhile"),
        ("Locator.fill: Error: Element is not an <input>", "it failed: Error: Element is not an <input>"),
        (
            "Locator.click: Timeout 5ms exceeded.\nCall log:\n  - waiting\n  - element is not enabled\n  - retrying",
            "it was not possible in time: element is not enabled. Take a new browser_snapshot.",
        ),
    ],
)
def test_errors_of_the_browser_become_sentences(message, text):
    assert explain_error(message, "it") == text
