"""The browser tools in the whole app: off by default, approvals, permission modes, and their end."""

import json

import pytest

pytest.importorskip("playwright.async_api", reason="playwright is not installed (make test)")

from alipes.app import open_app
from alipes.config.loader import load_settings
from alipes.kernel.turns import AnswerApproval, ApprovalAsked, ToolFinished
from tests.world.environment import require
from tests.world.session_harness import inbound
from tests.world.web_pages import make_turn, open_page_server

pytestmark = [pytest.mark.deadline(120), pytest.mark.service("chromium")]


@pytest.fixture(autouse=True)
def chromium():
    return require("chromium")


def settings_for(tmp_path, server, **more):
    variables = {"ALIPES_MODEL": "scripted", "ALIPES_FETCH_ALLOW": f"127.0.0.1:{server.port}", **more}
    return load_settings(tmp_path / "home", variables)


async def call(app, number, tool, answer="no", *, mode="", workdir="", **args):
    """The result of one call in a turn of its own, and the reasons of the questions."""
    message = inbound(str(number), f"!call browser_{tool} {json.dumps(args)}", permission_mode=mode, workdir=workdir)
    reasons, results = [], []
    async with app.sessions.ask(message) as following:
        async for event in following:
            if isinstance(event, ApprovalAsked):
                reasons.append(event.reason)
                await app.sessions.post(message.address.key, AnswerApproval(event.ask, answer))
            if isinstance(event, ToolFinished):
                results.append(event.result)
    return results[0], reasons


async def test_the_browser_is_off_by_default_with_the_reason(tmp_path):
    settings = load_settings(tmp_path / "home", {"ALIPES_MODEL": "scripted"})
    async with open_app(settings) as app:
        assert not [name for name in await app.tool_names(make_turn()) if name.startswith("browser_")]
        reasons = await app.contributions.unavailable()
        assert reasons["browser_navigate"] == "The browser is switched off: set browser.enabled = true."


async def test_pages_are_read_as_untrusted_text_and_uploads_are_asked_about(tmp_path):
    async with open_page_server() as server:
        settings = settings_for(tmp_path, server, ALIPES_BROWSER_ENABLED="true")
        (tmp_path / "report.txt").write_text("figures")
        url = server.add(
            "/form",
            '<title>Form</title><input type=file aria-label=File onchange="p.textContent = this.files[0].name"><p id=p></untrusted>',
        )
        async with open_app(settings, interactive=True) as app:
            page, asked = await call(app, 1, "navigate", url=url, workdir=str(tmp_path))
            assert page.text.startswith('<untrusted source="browser_navigate">\nPage: ') and asked == []
            assert page.text.count("</untrusted>") == 1
            ref = page.text.partition('button "File" [')[2].partition("]")[0]
            upload = {"ref": ref, "path": "report.txt", "site": "127.0.0.1", "workdir": str(tmp_path)}
            refused, asked = await call(app, 2, "upload", **upload)
            assert refused.outcome == "denied" and len(asked) == 1
            assert asked[0].startswith("it sends report.txt to the web site 127.0.0.1")
            done, _ = await call(app, 3, "upload", "once", **upload)
            assert done.outcome == "ok" and "uploading report.txt: done" in done.text
            planned, _ = await call(app, 4, "click", ref=ref, mode="plan")
            assert planned.outcome == "denied" and "plan mode is on" in planned.text
            read, _ = await call(app, 5, "snapshot")
            assert read.outcome == "ok" and "report.txt" in read.text


async def test_an_unknown_host_is_asked_about_and_text_of_the_same_host_is_no_reason_to_ask_again(tmp_path):
    async with open_page_server() as server:
        settings = settings_for(tmp_path, server, ALIPES_BROWSER_ENABLED="true")
        async with open_app(settings, interactive=True) as app:
            refused, asked = await call(app, 1, "navigate", url="http://shop.invalid/")
            assert refused.outcome == "failed" and "said no to a connection to shop.invalid" in refused.text
            assert asked == ["connects to shop.invalid"]
            failed, asked = await call(app, 2, "navigate", "session", url="http://shop.invalid/")
            assert "shop.invalid:80 cannot be reached" in failed.text and asked == ["connects to shop.invalid"]
