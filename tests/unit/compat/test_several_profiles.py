"""Hermes modules in a process that serves several profiles."""

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from threading import Thread
from typing import Any, cast

import pytest

from alipes.compat.hermes.bridge import Bridge
from alipes.compat.hermes.modules import config, current_app, gateway_names, locks
from alipes.compat.hermes.platform.platform import OpenApprovals
from alipes.compat.hermes.session_keys import SessionSource, build_session_key, own_key
from alipes.config.paths import PROFILES_MARK, use_environ
from alipes.config.settings import Settings
from alipes.kernel.messages import ToolCall
from alipes.kernel.turns import ApprovalAsked

KEY = "agent:main:telegram:dm:7"


@pytest.fixture
def homes(tmp_path: Path) -> Iterator[dict[str, Path]]:
    """The homes of two profiles, with an open bridge each."""
    found = {name: tmp_path / "profiles" / name for name in ("work", "play")}
    with ExitStack() as stack:
        for name, home in found.items():
            home.mkdir(parents=True)
            (home.parent / PROFILES_MARK).touch()
            (home / ".env").write_text(f"PLUGIN_TOKEN=canary-of-{name}\n")
            with scope(home):
                bridge = Bridge(cast("Any", None), Settings(home=home))
                current_app.bind(bridge)
            stack.callback(current_app.unbind, bridge)
        yield found


def scope(home: Path) -> Any:
    return use_environ({"ALIPES_HOME": str(home)})


def test_modules_answer_for_the_profile_that_calls(homes):
    for name, home in homes.items():
        with scope(home):
            assert config.get_active_profile_name() == name
            assert config.get_hermes_home() == home
            assert config.get_secret("PLUGIN_TOKEN") == f"canary-of-{name}"


def test_a_thread_that_belongs_to_no_profile_gets_no_secret(homes):
    caught: list[Exception] = []

    def ask() -> None:
        try:
            config.get_secret("PLUGIN_TOKEN")
        except current_app.UnscopedSecretError as error:
            caught.append(error)

    thread = Thread(target=ask)
    thread.start()
    thread.join()
    assert len(caught) == 1


def test_a_session_key_may_name_the_own_profile_but_no_other(homes):
    with scope(homes["work"]):
        source = SessionSource("telegram", "7")
        assert build_session_key(source) == build_session_key(source, profile="work") == KEY
        assert build_session_key(source, profile="play") == "agent:play:telegram:dm:7"
        assert own_key("agent:work:telegram:dm:7") == KEY
        assert own_key("agent:play:telegram:dm:7") == "agent:play:telegram:dm:7"


def test_an_approval_of_one_profile_is_not_answered_from_another(homes):
    approvals, answers = OpenApprovals(), []
    with scope(homes["work"]):
        approvals.put(KEY, ApprovalAsked("a1", ToolCall("1", "terminal", {}), "why", ""), answers.append)
    with scope(homes["play"]):
        assert not approvals.has_open(KEY) and approvals.find("a1") is None
        assert approvals.resolve(KEY, "once") == 0 and not answers
    with scope(homes["work"]):
        assert approvals.resolve("agent:work:telegram:dm:7", "once") == 1 and len(answers) == 1


def test_sent_texts_and_account_locks_are_kept_by_profile(homes):
    with scope(homes["work"]):
        gateway_names.record_sent_text(7, 1, "a text of work")
        assert locks.acquire_scoped_lock("test-bot", "account-of-this-test")[0]
    with scope(homes["play"]):
        assert gateway_names.lookup_sent_text(7, 1) is None
        assert not locks.acquire_scoped_lock("test-bot", "account-of-this-test")[0]
    with scope(homes["work"]):
        assert gateway_names.lookup_sent_text(7, 1) == "a text of work"
        locks.release_scoped_lock("test-bot", "account-of-this-test")
