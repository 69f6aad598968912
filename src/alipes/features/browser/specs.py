"""What the model sees of the browser tools. Imported at every start, so it imports nothing of the browser."""

from collections.abc import Mapping

from alipes.kernel.errors import ToolError
from alipes.kernel.messages import Json
from alipes.kernel.ports import ToolContext, ToolSpec
from alipes.tools.common import make_schema

OFF = "The browser is switched off: set browser.enabled = true."

NAVIGATE = ToolSpec(
    name="browser_navigate",
    description="Open a URL in the browser. Returns the page as a tree with refs such as [e12].",
    schema=make_schema("url", url="string", new_tab="boolean"),
    effect="read",
    untrusted=True,
)
SNAPSHOT = ToolSpec(
    name="browser_snapshot",
    description="Show the current page as a tree with refs.",
    schema=make_schema(
        "", ref="string: only this part", line="integer: from this line on", tab="integer: switch to it first"
    ),
    effect="read",
    untrusted=True,
)
CLICK = ToolSpec(
    name="browser_click",
    description="Click an element.",
    schema=make_schema("ref", ref="string", accept_dialog="boolean: answer a question of the page with yes"),
    untrusted=True,
)
TYPE = ToolSpec(
    name="browser_type",
    description="Replace the text of a field.",
    schema=make_schema("ref text", ref="string", text="string", submit="boolean: press Enter afterwards"),
    untrusted=True,
)
PRESS = ToolSpec(
    name="browser_press",
    description="Press a key, such as Enter, Escape, ArrowDown, Control+A.",
    schema=make_schema("key", key="string", ref="string: element that gets it"),
    untrusted=True,
)
SELECT = ToolSpec(
    name="browser_select",
    description="Choose options of a list by their labels or values.",
    schema=make_schema("ref options", ref="string", options="strings"),
    untrusted=True,
)
SCROLL = ToolSpec(
    name="browser_scroll",
    description="Scroll the page, for screenshots and pages that load more at the end.",
    schema=make_schema("", direction=["down", "up", "top", "bottom"], ref="string: scroll to it instead"),
    effect="read",
    untrusted=True,
)
BACK = ToolSpec(
    name="browser_back",
    description="Go back to the previous page; in a tab without one, close the tab.",
    schema=make_schema(""),
    effect="read",
    untrusted=True,
)
SCREENSHOT = ToolSpec(
    name="browser_screenshot",
    description="Look at the page as an image; browser_snapshot is shorter and has refs.",
    schema=make_schema("", ref="string: only this element", full_page="boolean"),
    effect="read",
    untrusted=True,
)
DOWNLOAD = ToolSpec(
    name="browser_download",
    description="Save a file into downloads/ of the project.",
    schema=make_schema("", ref="string: link or button that downloads it", url="string: or its URL"),
    untrusted=True,
)
CONSOLE = ToolSpec(
    name="browser_console",
    description="Messages and errors of the page's scripts since the last time.",
    schema=make_schema(""),
    effect="read",
    untrusted=True,
)
UPLOAD = ToolSpec(
    name="browser_upload",
    description="Choose a file for a file field. The user is asked.",
    schema=make_schema(
        "ref path site", ref="string: field or its button", path="string", site="string: host of the page"
    ),
    untrusted=True,
)
ALL = (NAVIGATE, SNAPSHOT, CLICK, TYPE, PRESS, SELECT, SCROLL, BACK, SCREENSHOT, DOWNLOAD, CONSOLE, UPLOAD)


class BrowserOffTool:
    """A tool of the browser while it is switched off: it is listed with the reason, and cannot be used."""

    def __init__(self, spec: ToolSpec) -> None:
        self.spec = spec

    def why_unavailable(self) -> str:
        return OFF

    async def run(self, args: Mapping[str, Json], act: ToolContext) -> str:
        raise ToolError(OFF)
