"""The reason of a question, as a person reads it."""

import pytest

from alipes.agent.approval.assessment import assess_call
from alipes.kernel.messages import ToolCall
from alipes.tools.common import Places


@pytest.mark.parametrize(
    ("path", "why"),
    [
        (".github/workflows/ci.yml", "this file runs in CI"),
        (".gitlab-ci.yml", "this file runs in CI"),
        ("Jenkinsfile", "this file runs in CI"),
        (".git/hooks/pre-commit", "this file is run or trusted by git"),
        (".vscode/tasks.json", "this file is run or trusted by your editor"),
        (".envrc", "this file runs when you enter the folder"),
    ],
)
@pytest.mark.parametrize("command", ["echo x > {}", "sed -i s/a/b/ {}"])
def test_a_file_that_is_trusted_says_who_trusts_it(tmp_path, command, path, why):
    assert assess(tmp_path, command.format(path)).why == why


@pytest.mark.parametrize(
    ("command", "why"),
    [
        ("git push --force origin main", "a force-push can overwrite work on the remote"),
        ("git push origin +main", "a force-push can overwrite work on the remote"),
        ("git push --mirror", "a force-push can overwrite work on the remote"),
        ("git push origin --delete old", "this push can delete branches of the remote"),
        ("git push origin :old", "this push can delete branches of the remote"),
    ],
)
def test_a_push_says_what_it_can_do(tmp_path, command, why):
    assert assess(tmp_path, command).why == why


def test_a_secret_file_is_not_named_again(tmp_path):
    (tmp_path / "home" / ".ssh").mkdir(parents=True)
    (tmp_path / "home" / ".ssh" / "id_rsa").write_text("key")
    assert (
        assess_call_in(tmp_path, ToolCall("c", "read_file", {"path": "~/.ssh/id_rsa"})).why == "this file holds secrets"
    )


def assess(tmp_path, command):
    return assess_call_in(tmp_path, ToolCall("c", "terminal", {"command": command}))


def assess_call_in(tmp_path, call):
    (work := tmp_path / "home" / "work").mkdir(parents=True)
    places = Places(home=str(tmp_path / "home"), alipes_home=str(tmp_path / "home" / ".alipes"), scratch=())
    risk = assess_call(call, str(work), places)
    assert risk is not None
    return risk
