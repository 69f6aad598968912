"""Sending a file asks first, unless the model wrote it in the same turn."""

from pathlib import Path

import pytest

from alipes.agent.approval.sent_files import SentFileApproval
from alipes.kernel.errors import ToolError
from alipes.kernel.messages import ToolCall, ToolResult
from alipes.kernel.turns import Address, Inbound, Turn
from alipes.tools.boundary import FileBoundary
from alipes.tools.common import Places
from alipes.tools.send_file import SendFileTool


class Here:
    def __init__(self, workdir):
        self.call_id, self.session, self.workdir = "c", "s", str(workdir)


def turn_in(folder, id="t"):
    return Turn(id, "s", Inbound("1", Address("telegram", "7"), "7", "send it", workdir=str(folder)))


def send(path):
    return ToolCall("c2", "send_file", {"path": str(path)})


@pytest.fixture
def approval(tmp_path):
    return SentFileApproval(FileBoundary(Places(home=str(tmp_path), alipes_home=str(tmp_path / ".alipes"))))


async def test_a_file_that_was_there_before_is_asked_about(approval, tmp_path):
    verdict = await approval.before_tool(send("report.pdf"), turn_in(tmp_path))
    assert verdict.ruling == "ask" and f"{tmp_path}/report.pdf" in verdict.reason
    assert await approval.before_tool(ToolCall("c", "read_file", {"path": "x"}), turn_in(tmp_path)) is None


async def test_a_file_written_in_this_turn_is_sent_unasked(approval, tmp_path):
    here = turn_in(tmp_path)
    write = ToolCall("c1", "write_file", {"path": "new.csv", "content": "x"})
    await approval.after_tool(write, ToolResult("c1", "no", "failed"), here)
    assert (await approval.before_tool(send("new.csv"), here)).ruling == "ask"
    await approval.after_tool(write, ToolResult("c1", "written"), here)
    assert await approval.before_tool(send(tmp_path / "new.csv"), here) is None
    assert (await approval.before_tool(send("new.csv"), turn_in(tmp_path, "other"))).ruling == "ask"
    await approval.turn_ended(here)
    assert (await approval.before_tool(send("new.csv"), here)).ruling == "ask"


async def test_a_link_to_another_file_is_not_the_written_one(approval, tmp_path):
    here = turn_in(tmp_path)
    (tmp_path / "old.txt").write_text("x")
    await approval.after_tool(ToolCall("c1", "write_file", {"path": "new"}), ToolResult("c1", "written"), here)
    (tmp_path / "new").symlink_to(tmp_path / "old.txt")
    assert (await approval.before_tool(send("new"), here)).ruling == "ask"


async def test_only_files_of_the_working_directory_that_hold_no_secrets_are_sent(tmp_path):
    home, work = tmp_path / ".alipes", tmp_path / "work"
    for path in (home / "files" / "theirs.txt", home / ".env", home / "outgoing" / "a.png", work / "report.pdf"):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("x")
    (work / "link").symlink_to(home / ".env")
    (work / "hard").hardlink_to(home / ".env")
    (tmp_path / "note.txt").write_text("x")
    tool = SendFileTool(FileBoundary(Places(home=str(tmp_path), alipes_home=str(home))), home / "outgoing")
    output = await tool.run({"path": str(home / "outgoing" / "a.png")}, Here(work))
    assert output.files == (str(home / "outgoing" / "a.png"),)
    output = await tool.run({"path": "report.pdf"}, Here(work))
    assert output.text == f"Attached {work}/report.pdf"
    (sent,) = map(Path, output.files)
    (work / "report.pdf").unlink()
    (work / "report.pdf").symlink_to(home / ".env")  # what is sent later is what was judged
    assert (sent.name, sent.read_text()) == ("report.pdf", "x") and sent.is_relative_to(home / "outgoing")
    for path in (
        "report.pdf",
        "link",
        "hard",
        "../note.txt",
        home / "files" / "theirs.txt",
        home / ".env",
        "missing",
        ".",
    ):
        with pytest.raises(ToolError):
            await tool.run({"path": str(path)}, Here(work))
