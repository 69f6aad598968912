"""`[tools]`: which tools are off, everywhere and on a platform."""

import pytest

from alipes.config.loader import load_settings
from alipes.config.tools import PlatformTools, ToolsConfig, select_tools
from alipes.kernel.errors import ConfigError

GROUPS = {
    "terminal": "core",
    "process": "core",
    "process_image": "core",
    "browser_click": "core",
    "browser_type": "core",
    "mcp__git__log": "mcp__git",
    "mcp__github__issues": "mcp__github",
    "rain": "weather",
}


def load(home, text):
    home.mkdir(exist_ok=True)
    (home / "config.toml").write_text(text)
    return load_settings(home, {})


@pytest.mark.parametrize(
    ("names", "meant"),
    [
        (["terminal"], ["terminal"]),
        (["browser"], ["browser_click", "browser_type"]),
        (["process"], ["process"]),
        (["mcp__git"], ["mcp__git__log"]),
        (["mcp"], ["mcp__git__log", "mcp__github__issues"]),
        (["weather", "rain"], ["rain"]),
        (["rai"], []),
        (["core"], ["terminal", "process", "process_image", "browser_click", "browser_type"]),
    ],
)
def test_a_name_means_a_tool_a_group_or_the_start_of_names(names, meant):
    assert list(select_tools(names, GROUPS)) == meant


def test_a_platform_switches_tools_on_that_are_off_elsewhere_and_others_off():
    tools = ToolsConfig(("browser", "rain"), {"telegram": PlatformTools(off=("terminal",), on=("browser_click",))})
    assert tools.find_off("telegram", GROUPS) == {
        "browser_type": "tools.off",
        "rain": "tools.off",
        "terminal": "tools.telegram.off",
    }
    assert tools.find_off("terminal", GROUPS).keys() == {"browser_click", "browser_type", "rain"}


def test_off_on_a_platform_wins_over_on():
    tools = ToolsConfig((), {"irc": PlatformTools(off=("browser",), on=("browser",))})
    assert tools.find_off("irc", GROUPS).keys() == {"browser_click", "browser_type"}


def test_the_tables_are_read(tmp_path):
    text = '[tools]\noff = ["browser"]\n[tools.telegram]\non = ["browser"]\n[tools.slack]\noff = ["terminal"]\n'
    tools = load(tmp_path, text).tools
    assert tools.off == ("browser",)
    assert tools.platforms == {"telegram": PlatformTools(on=("browser",)), "slack": PlatformTools(off=("terminal",))}


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ('[tools]\noff = "browser"', "tools.off = "),
        ("[tools]\ntelegram = 1", "must be a table"),
        ("[tools.telegram]\nof = []", "Did you mean off"),
        ('[tools.telegram]\noff = ["a b"]', "must contain names"),
    ],
)
def test_mistakes_are_named_with_their_place(tmp_path, text, says):
    with pytest.raises(ConfigError) as caught:
        load(tmp_path, text)
    assert says in str(caught.value) and "config.toml:" in str(caught.value)
