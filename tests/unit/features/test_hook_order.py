"""The order in which the hooks of the core and of the features are called: a change of it is made on purpose."""

import pytest

from alipes.app import open_app
from alipes.config.loader import load_settings
from alipes.testing.scripted_provider import ScriptedProvider

APPROVAL = "ApprovalGate.before_tool"
ORDER = {
    # The first decision counts. Uploads are asked about by their own question, and not once more by the approval;
    # behind the approval each hook is for calls of one tool: `send_file`, `memory`, `cronjob`; and what a call may write is
    # noted, which decides nothing.
    "before_tool": [
        "UploadApproval.before_tool",
        APPROVAL,
        "TaintTracker.before_tool",
        "SentFileApproval.before_tool",
        "FileApproval.before_tool",
        "MemoryService.before_tool",
        "ScheduleApproval.before_tool",
    ],
    # After the decision, so a checkpoint is made only for a call that runs.
    "around_tool": ["TurnCheckpoints.around_tool"],
    # At last, because the others may look at the files of the call.
    "after_tool": ["TaintTracker.after_tool", "SentFileApproval.after_tool", "FileApproval.after_tool"],
    "turn_context": ["TaintTracker.turn_context", "MemoryRecall.turn_context"],
    "agent_loop_stopped": ["SandboxNetwork.agent_loop_stopped"],
    # They start in this order and run in parallel. The order matters for those that ask a model, as all are paid from
    # one budget: titles, learning, compaction. The others forget what the turn needed, or write each to its own place.
    "turn_ended": [
        "TaintTracker.turn_ended",
        "SandboxNetwork.turn_ended",
        "SentFileApproval.turn_ended",
        "FileApproval.turn_ended",
        "ConversationTitles.turn_ended",
        "MemoryService.turn_ended",
        "MemoryRecall.turn_ended",
        "Learning.turn_ended",
        "SourceNumbers.turn_ended",
        "TurnCheckpoints.turn_ended",
        "ScheduledTurns.turn_ended",
        "Compactor.turn_ended",
        "ConversationSearch.turn_ended",
    ],
    # In parallel; each closes what is its own.
    "session_left": [
        "BackgroundProcesses.session_left",
        "ChosenBackend.session_left",
        "NetworkNamespaces.session_left",
        "PageReader.session_left",
        "BrowserSessions.session_left",
        "Compactor.session_left",
    ],
}


@pytest.mark.parametrize("interactive", [True, False], ids=["conversation", "ask"])
async def test_the_hooks_are_called_in_this_order(tmp_path, interactive):
    (tmp_path / "config.toml").write_text('model = "scripted"\n[browser]\nenabled = true\n')
    settings = load_settings(tmp_path, {})
    async with open_app(settings, interactive=interactive, lent={"scripted": ScriptedProvider()}) as app:
        found = {name: [each.hook.__qualname__ for each in hooks] for name, hooks in app.hooks._entries.items()}
    left_out = () if interactive else ("Learning.turn_ended",)  # the process ends with the turn
    assert found == {name: [each for each in hooks if each not in left_out] for name, hooks in ORDER.items()}
