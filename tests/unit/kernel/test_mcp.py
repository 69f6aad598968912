"""How calls of MCP tools are named for people."""

from alipes.kernel.approvals import MCP_SAMPLING, describe_call
from alipes.kernel.messages import ToolCall
from alipes.kernel.tool_labels import describe_activity, describe_tool


def test_a_call_is_labelled_with_server_and_tool():
    call = ToolCall("1", "mcp__git__log", {"path": "src"})
    assert describe_tool(call).text == "git: log src"
    assert describe_activity(call) == "running git: log"


def test_an_approval_names_the_server_and_shows_all_arguments():
    call = ToolCall("1", "mcp__git__push", {"command": "now", "force": True})
    shown = describe_call(call)
    assert shown.title == "Allow push of the MCP server git?"
    assert shown.body == "command: now\nforce: true"


def test_an_approval_of_sampling_names_the_server():
    shown = describe_call(ToolCall("1", MCP_SAMPLING, {"server": "git\u202e"}))
    assert shown.title == "Let the MCP server git<U+202E> ask a model, at your cost?"


def test_reading_a_resource_is_labelled():
    assert describe_tool(ToolCall("1", "mcp_read_resource", {"server": "git", "uri": "x://1"})).text == "Read git:x://1"
