"""Downloads and uploads of the browser tools, in real Chromium."""

import asyncio
import os
from pathlib import Path

import pytest
from aiohttp import web

pytest.importorskip("playwright.async_api", reason="playwright is not installed (make test)")

from alipes.agent.approval.taint import describe_untrusted_file
from alipes.features.browser.downloads import clean_file_name
from alipes.features.browser.hooks import UploadApproval
from alipes.kernel.errors import ToolError
from alipes.kernel.messages import ToolCall
from alipes.tools.boundary import FileBoundary
from alipes.tools.common import Places
from tests.unit.features.browser.shared import in_browser, open_shared_browser
from tests.world.web_pages import make_turn

pytestmark = pytest.mark.service("chromium")
ATTACHED = {"content-disposition": 'attachment; filename="../../.bashrc"'}


@pytest.fixture(scope="module")
def shared():
    yield from open_shared_browser(download_mb=1)


def saved(shared):
    folder = Path(shared.workdir, "downloads")
    return {path.name: path.read_bytes() for path in folder.iterdir()} if folder.exists() else {}


@pytest.fixture(autouse=True)
def no_downloads(shared):
    for name in saved(shared.world):
        Path(shared.world.workdir, "downloads", name).unlink()


@in_browser
async def test_a_link_is_downloaded_into_the_project_under_a_harmless_name(shared):
    shared.server.add("/file", b"data", "application/octet-stream", **ATTACHED)
    page = await shared.show("<a href=/file>Get</a>")
    result = await shared.run("download", ref=shared.ref(page, "Get"))
    assert "[saved downloads/bashrc (4 bytes)]" in result and saved(shared) == {"bashrc": b"data"}
    await shared.run("download", ref=shared.ref(page, "Get"))
    assert saved(shared) == {"bashrc": b"data", "bashrc-1": b"data"}


@in_browser
async def test_a_downloaded_file_counts_as_text_of_strangers(shared):
    shared.server.add("/file", b"data", "application/octet-stream", **ATTACHED)
    await shared.show("<h1>here</h1>")
    await shared.run("download", url=shared.server.url("/file?token=secret"))
    path = os.path.join(shared.workdir, "downloads", "bashrc")
    try:
        os.setxattr(path, "user.probe", b"1")
    except OSError:
        pytest.skip("this file system has no extended attributes")
    assert describe_untrusted_file(path, "/nowhere").startswith("the downloaded file")
    assert b"secret" not in os.getxattr(path, "user.xdg.origin.url")


@in_browser
async def test_a_file_that_chromium_would_show_is_saved_by_its_url(shared):
    shared.server.add("/notes.txt", "plain text", "text/plain")
    await shared.show("<h1>here</h1>")
    result = await shared.run("download", url=shared.server.url("/notes.txt"))
    assert "[saved downloads/notes.txt (10 bytes)]" in result and saved(shared) == {"notes.txt": b"plain text"}
    assert f"Page: {shared.server.url('/shown')}" in result and "tabs:" not in result


@in_browser
async def test_a_file_that_is_too_large_is_refused(shared):
    async def endless(request):
        answer = web.StreamResponse(headers={"content-disposition": "attachment; filename=big.bin"})
        await answer.prepare(request)
        try:
            while True:
                await answer.write(b"x" * 100_000)
                await asyncio.sleep(0.002)
        except ConnectionError:
            return answer

    shared.server.add("/big", endless)
    shared.server.add("/shown-big", "y" * 1_500_000, "text/plain")
    page = await shared.show("<a href=/big>Get</a>")
    with pytest.raises(ToolError, match=r"big.bin is larger than 1 MB \(browser.download_mb\)"):
        await shared.run("download", ref=shared.ref(page, "Get"))
    with pytest.raises(ToolError, match=r"too large"):
        await shared.run("download", url=shared.server.url("/shown-big"))
    assert saved(shared) == {}


@in_browser
async def test_a_download_that_was_not_asked_for_is_not_saved(shared):
    shared.server.add("/file", b"data", "application/octet-stream", **ATTACHED)
    page = await shared.show("<a href=/file>Get</a>")
    result = await shared.run("click", ref=shared.ref(page, "Get"))
    if "offered the file" not in result:
        result = await shared.run("snapshot")
    assert "which was not saved; browser_download saves it]" in result and saved(shared) == {}


@in_browser
async def test_a_folder_of_downloads_that_is_a_link_is_refused(shared, tmp_path):
    folder = Path(shared.workdir, "downloads")
    if folder.exists():
        folder.rmdir()
    folder.symlink_to(tmp_path)
    try:
        shared.server.add("/notes.txt", "plain text", "text/plain")
        with pytest.raises(ToolError, match=r"cannot be saved in downloads/"):
            await shared.run("download", url=shared.server.url("/notes.txt"))
        assert not any(tmp_path.iterdir())
    finally:
        folder.unlink()


@in_browser
async def test_a_refused_host_is_not_downloaded_from(shared):
    with pytest.raises(ToolError, match=r"said no to a connection to files.test"):
        await shared.run("download", url="http://files.test/file")
    with pytest.raises(ToolError, match=r"give either ref or url"):
        await shared.run("download")


@in_browser
async def test_a_file_is_uploaded_by_its_field_or_its_button(shared):
    async def take(request):
        form = await request.post()
        shared.server.bodies.append(form["f"].file.read())
        return web.Response(text="thanks")

    shared.server.add("/take", take)
    Path(shared.workdir, "report.txt").write_text("figures")
    page = await shared.show(
        "<form action=/take method=post enctype=multipart/form-data><input type=file name=f aria-label=File>"
        "<button>Send</button></form>"
    )
    ref = shared.ref(page, "File")
    await shared.run("upload", ref=ref, path="report.txt", site="127.0.0.1")
    assert "thanks" in await shared.run("click", ref=shared.ref(page, "Send"))
    assert shared.server.bodies == [b"figures"]
    page = await shared.show(
        "<input type=file id=f style='display: none' onchange=\"p.textContent = f.files[0].name\"><p id=p>-</p>"
        '<button onclick="f.click()">Choose</button>'
    )
    await shared.run("upload", ref=shared.ref(page, "Choose"), path="report.txt", site="127.0.0.1")
    assert "report.txt" in await shared.run("snapshot")


@in_browser
async def test_secrets_and_files_for_another_site_are_not_uploaded(shared):
    Path(shared.workdir, ".env").write_text("KEY=1")
    Path(shared.workdir, "report.txt").write_text("figures")
    page = await shared.show("<input type=file aria-label=File>")
    ref = shared.ref(page, "File")
    for path in (".env", "../.ssh/id_rsa", "/etc/shadow", "missing", "."):
        with pytest.raises(ToolError, match=r"never uploaded|cannot be read|is not a file"):
            await shared.run("upload", ref=ref, path=path, site="127.0.0.1")
    with pytest.raises(ToolError, match=r"the page is of 127.0.0.1, not of shop.test: nothing was uploaded"):
        await shared.run("upload", ref=ref, path="report.txt", site="shop.test")
    with pytest.raises(ToolError, match=r"is a field for files: use browser_upload"):
        await shared.run("type", ref=ref, text="report.txt")


@in_browser
async def test_what_was_asked_about_is_uploaded_and_not_what_its_name_leads_to_later(shared):
    async def take(request):
        form = await request.post()
        shared.server.bodies.append(form["f"].file.read())
        return web.Response(text="thanks")

    shared.server.add("/take", take)
    shared.server.bodies.clear()
    work, outside = Path(shared.workdir), Path(shared.home, "outside")
    for folder, text in ((work / "d", "figures"), (outside, "canary")):
        folder.mkdir()
        (folder / "report.txt").write_text(text)
    page = await shared.show(
        "<form action=/take method=post enctype=multipart/form-data><input type=file name=f aria-label=File>"
        "<button>Send</button></form>"
    )
    call = ToolCall("c1", "browser_upload", {"ref": "e1", "path": "d/report.txt", "site": "127.0.0.1"})
    asked = await UploadApproval(shared.boundary).before_tool(call, make_turn(workdir=shared.workdir))
    assert asked.reason == "it sends d/report.txt to the web site 127.0.0.1"
    (work / "d").rename(work / "real")
    (work / "d").symlink_to(outside)
    await shared.run("upload", ref=shared.ref(page, "File"), path="d/report.txt", site="127.0.0.1")
    (work / "real" / "report.txt").write_text("changed before it was sent")
    assert "thanks" in await shared.run("click", ref=shared.ref(page, "Send"))
    assert shared.server.bodies == [b"figures"]
    shared.boundary.release("s1")


async def test_every_upload_is_asked_about_with_its_file_and_site(tmp_path):
    boundary = FileBoundary(Places(home=str(tmp_path), alipes_home=str(tmp_path / ".alipes")))
    ask, turn = UploadApproval(boundary).before_tool, make_turn(workdir=str(tmp_path))
    call = ToolCall("c1", "browser_upload", {"ref": "e1", "path": "a.txt", "site": "shop.test"})
    verdict = await ask(call, turn)
    assert (verdict.ruling, verdict.reason) == ("ask", "it sends a.txt to the web site shop.test")
    (tmp_path / "notes.txt").touch()
    (tmp_path / "b.txt").symlink_to("notes.txt")
    linked = ToolCall("c2", "browser_upload", {"ref": "e1", "path": "b.txt", "site": "shop.test"})
    assert (await ask(linked, turn)).reason == f"it sends {tmp_path}/notes.txt to the web site shop.test"
    assert await ask(ToolCall("c3", "browser_click", {"ref": "e1"}), turn) is None
    boundary.release("s1")


@pytest.mark.parametrize(
    ("given", "name"),
    [
        ("report.pdf", "report.pdf"),
        ("../../etc/passwd", "passwd"),
        ("C:\\Users\\ann\\a.doc", "a.doc"),
        (".bashrc", "bashrc"),
        ("...", "download"),
        ("", "download"),
        ("a\0b\n‮c.txt", "a_b_c.txt"),
        ("über straße.txt", "über straße.txt"),
        ("x" * 300 + ".tar", "x" * 96 + ".tar"),
    ],
)
def test_names_of_files_are_made_harmless(given, name):
    assert clean_file_name(given) == name
