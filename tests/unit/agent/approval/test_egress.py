"""Egress rights: settings, questions that are asked once, and what a yes allows."""

import asyncio
from contextlib import asynccontextmanager

import pytest
from msgspec import structs

from alipes.agent.approval.egress import EgressRights, find_configured_registries, read_git_remotes
from alipes.config.settings import EgressConfig
from alipes.kernel.conversations import QuestionUndelivered
from alipes.kernel.turns import Address, Inbound, Turn
from alipes.runtime.http.egress import EgressRequest
from alipes.runtime.http.public_fetch import AddressGuard
from alipes.runtime.sandbox.backend import CommandScope
from tests.unit.runtime.test_egress_proxy import OK, Server, exchange, open_proxy


def make_turn(id="t1", **more):
    return Turn(id, "s1", Inbound("m1", Address("cli", "c"), "ann", "go", **more))


class Person:
    """Answers questions by host or group; keeps them."""

    def __init__(self, **answers):
        self.answers, self.asked = answers, []
        self.may_answer = asyncio.Event()
        self.may_answer.set()

    async def ask(self, call, reason, turn):
        assert call.name == "network"
        self.asked.append((call.args.get("group") or call.args["host"], reason))
        await self.may_answer.wait()
        return self.answers.get((call.args.get("group") or call.args["host"]).split(".")[0].split(" ")[0], "no")


@asynccontextmanager
async def open_rights(person=None, *, allowed=(), registries=(), **settings):
    ask = None if person is None else person.ask
    async with EgressRights(EgressConfig(**settings), AddressGuard(allowed), ask, registries=registries) as rights:
        yield rights


def request(host, port=443, turn=None, workdir=""):
    return EgressRequest(host, port, "tunnel", CommandScope("s1", workdir, turn))


@pytest.mark.parametrize(
    ("host", "port", "allowed"),
    [
        ("pypi.org", 443, True),
        ("pypi.org", 80, True),
        ("pypi.org", 22, True),
        ("pypi.org", 8080, False),
        ("evil.pypi.org", 443, False),
        ("pypi.org.evil.example", 443, False),
        ("api.example.com", 443, True),
        ("a.b.example.com", 443, True),
        ("example.com", 443, False),
        ("notexample.com", 443, False),
        ("registry.example.org", 8443, True),
        ("registry.example.org", 443, False),
        ("2606:4700::1", 8443, True),
        ("2606:4700::1", 443, False),
        ("2606:4700::2", 443, True),
    ],
)
async def test_hosts_are_allowed_by_the_settings(host, port, allowed):
    allow = ("pypi.org", "*.example.com", "registry.example.org:8443", "[2606:4700::1]:8443", "2606:4700::2")
    async with open_rights(allow=allow, default="deny") as rights:
        assert (await rights.decide(request(host, port)) == "") is allowed


async def test_registries_means_all_registries_also_those_of_the_user():
    async with open_rights(allow=("registries",), default="deny", registries=("pip.corp.example:8443",)) as rights:
        assert await rights.decide(request("static.crates.io")) == ""
        assert await rights.decide(request("pip.corp.example", 8443)) == ""
        assert "pip.corp.example:443 is not in egress.allow" in await rights.decide(request("pip.corp.example"))


async def test_with_yes_for_everything_a_host_outside_the_list_is_allowed():
    async with open_rights(default="deny") as rights:
        assert await rights.decide(request("x.example", turn=make_turn(trusted=True))) == ""


async def test_denied_hosts_are_refused_on_every_port_and_in_every_mode():
    settings = {"allow": ("*.evil.example",), "deny": ("*.evil.example", "evil.example"), "default": "allow"}
    async with open_rights(**settings) as rights:
        for host, port in (("a.evil.example", 443), ("evil.example", 8080)):
            assert "denied by egress.deny" in await rights.decide(request(host, port, make_turn(trusted=True)))
        assert await rights.decide(request("other.example")) == ""


async def test_a_host_that_the_operator_listed_for_fetches_is_allowed():
    async with open_rights(allowed=("127.0.0.1:8000", "nas.lan"), default="deny") as rights:
        assert await rights.decide(request("127.0.0.1", 8000)) == ""
        assert await rights.decide(request("nas.lan", 5000)) == ""
        assert await rights.decide(request("127.0.0.1", 8001)) != ""


async def test_a_trusted_turn_is_not_asked():
    person = Person()
    async with open_rights(person) as rights:
        assert await rights.decide(request("new.example", turn=make_turn(trusted=True))) == ""
    assert person.asked == []


async def test_without_a_turn_or_a_person_the_answer_says_how_to_allow_the_host():
    async with open_rights(Person()) as rights, open_rights() as nobody:
        for why in (
            await rights.decide(request("x.example")),
            await nobody.decide(request("x.example", turn=make_turn())),
        ):
            assert why.startswith("x.example:443 is not allowed: nobody") and "egress.allow" in why


async def test_one_yes_counts_for_the_whole_turn_and_not_for_the_next():
    person = Person(x="once")
    async with open_rights(person) as rights:
        for _ in range(20):
            assert await rights.decide(request("x.example", turn=make_turn())) == ""
        assert person.asked == [("x.example", "connects to x.example")]
        await rights.decide(request("x.example", turn=make_turn("t2")))
    assert len(person.asked) == 2


async def test_a_no_is_remembered_for_the_turn():
    person = Person()
    async with open_rights(person) as rights:
        whys = {await rights.decide(request("x.example", turn=make_turn())) for _ in range(20)}
    assert whys == {"The user said no to a connection to x.example. Do not try to work around this."}
    assert len(person.asked) == 1


async def test_concurrent_connections_share_one_question():
    person = Person(x="once")
    person.may_answer.clear()
    async with open_rights(person) as rights:
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(rights.decide(request("x.example", turn=make_turn()))) for _ in range(20)]
            while not person.asked:
                await asyncio.sleep(0)
            person.may_answer.set()
    assert [task.result() for task in tasks] == [""] * 20 and len(person.asked) == 1


async def test_a_question_outlives_the_connection_that_gave_up():
    person = Person(x="once")
    person.may_answer.clear()
    async with open_rights(person) as rights:
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.01):
                await rights.decide(request("x.example", turn=make_turn()))
        person.may_answer.set()
        assert await rights.decide(request("x.example", turn=make_turn())) == ""
    assert len(person.asked) == 1


@pytest.mark.parametrize("stopped", [True, False])
async def test_a_stop_and_the_end_of_a_turn_withdraw_its_question(stopped):
    person = Person(x="once")
    person.may_answer.clear()
    turn = make_turn()
    async with open_rights(person) as rights, asyncio.TaskGroup() as group:
        task = group.create_task(rights.decide(request("x.example", turn=turn)))
        while not person.asked:
            await asyncio.sleep(0)
        await (rights.agent_loop_stopped(turn.id) if stopped else rights.turn_ended(turn))
        await task
    assert "the turn was stopped" in task.result()


async def test_after_its_turn_a_process_may_connect_only_to_what_stays_allowed():
    person = Person(kept="session", once="once")
    turn = make_turn()
    async with open_rights(person) as rights:
        for host in ("kept.example", "once.example"):
            assert await rights.decide(request(host, turn=turn)) == ""
        await rights.turn_ended(turn)
        assert await rights.decide(request("kept.example", turn=turn)) == ""
        assert "the turn has ended" in await rights.decide(request("once.example", turn=turn))
    assert len(person.asked) == 2


async def test_a_standing_yes_is_looked_up_each_time_because_it_can_be_revoked():
    person = Person(x="always")
    async with open_rights(person) as rights:
        assert await rights.decide(request("x.example", turn=make_turn())) == ""
        person.answers["x"] = "no"
        assert await rights.decide(request("x.example", turn=make_turn())) != ""


async def test_a_yes_for_the_turn_is_asked_again_after_untrusted_text():
    person, read = Person(x="once"), []

    async def is_tainted(turn, host):
        return turn.id in read

    async with EgressRights(EgressConfig(), AddressGuard(), person.ask, is_tainted=is_tainted) as rights:
        for _ in range(3):
            await rights.decide(request("x.example", turn=make_turn()))
        assert len(person.asked) == 1
        read.append("t1")
        for _ in range(3):
            assert await rights.decide(request("x.example", turn=make_turn())) == ""
    assert len(person.asked) == 2


async def test_a_remote_that_was_added_after_a_yes_is_asked_about(project):
    person = Person(git="once")
    async with open_rights(person) as rights:
        assert await rights.decide(request("gitlab.com", 443, make_turn(), str(project))) == ""
        (project / ".git" / "config").write_text(CONFIG + '[remote "new"]\nurl = https://evil.example/x\n')
        person.answers = {}
        assert await rights.decide(request("evil.example", 443, make_turn(), str(project))) != ""
    assert len(person.asked) == 2


async def test_a_remote_that_the_commands_of_the_conversation_added_is_a_stranger(project):
    person = Person(git="once")
    async with open_rights(person) as rights:
        rights.remember_remotes(CommandScope("s1", str(project)))
        (project / ".git" / "config").write_text(CONFIG + '[remote "new"]\nurl = https://evil.example/x\n')
        assert await rights.decide(request("gitlab.com", 443, make_turn(), str(project))) == ""
        assert await rights.decide(request("evil.example", 443, make_turn(), str(project))) != ""
    assert person.asked[1] == ("evil.example", "connects to evil.example")


async def test_a_host_listed_for_fetches_is_still_asked_about_for_a_command():
    person = Person(nas="once")
    async with open_rights(person, allowed=("nas.lan",)) as rights:
        fetch = request("nas.lan", turn=make_turn())
        assert rights.rule(fetch) == "allow" and rights.rule(structs.replace(fetch, by_command=True)) == "ask"


async def test_the_question_says_which_command_asks_and_which_host_of_a_group_it_needs():
    asked = []

    async def ask(call, reason, turn):
        asked.append(call.args)
        return "once"

    async with EgressRights(EgressConfig(), AddressGuard(), ask) as rights:
        for host, command in (("pypi.org", "pip install ruff"), ("x.example", "")):
            await rights.decide(structs.replace(request(host, turn=make_turn()), command=command))
    group, single = asked
    assert (group["host"], group["group"], group["command"]) == ("pypi.org", "package registries", "pip install ruff")
    assert len(group["hosts"]) == 24 and single == {"host": "x.example", "port": 443}


async def test_an_undelivered_question_is_a_no_with_its_reason():
    async with open_rights(Person(x=QuestionUndelivered("no network"))) as rights:
        assert "could not be asked (no network)" in await rights.decide(request("x.example", turn=make_turn()))


async def test_an_unusual_port_is_another_question():
    person = Person(x="once")
    async with open_rights(person) as rights:
        for port in (443, 80, 8443):
            await rights.decide(request("x.example", port, make_turn()))
    assert [name for name, _ in person.asked] == ["x.example", "x.example:8443"]


async def test_one_yes_allows_all_package_registries():
    person = Person(package="once")
    async with open_rights(person) as rights:
        for host in ("pypi.org", "files.pythonhosted.org", "registry.npmjs.org"):
            assert await rights.decide(request(host, turn=make_turn())) == ""
        await rights.decide(request("pypi.org", 8443, make_turn()))
    assert person.asked == [
        ("package registries", "connects to pypi.org, a package registry"),
        ("pypi.org:8443", "connects to pypi.org:8443"),
    ]


CONFIG = """
[core]
  bare = false
[remote "origin"]
  url = git@github.com:me/x.git
  fetch = +refs/heads/*:refs/remotes/origin/*
[remote "work"]
  url = "ssh://git@git.corp.example:2222/x.git"
  pushurl = https://me@gitlab.com/x
[remote "here"]
  url = ../other
[branch "main"]
  url = https://not-a-remote.example/
"""


@pytest.fixture
def project(tmp_path):
    (tmp_path / "p" / ".git").mkdir(parents=True)
    (tmp_path / "p" / ".git" / "config").write_text(CONFIG)
    (tmp_path / "p" / "sub").mkdir()
    return tmp_path / "p"


def test_git_remotes_are_read_from_the_project_its_folders_and_its_work_trees(project):
    remotes = ("github.com", "git.corp.example:2222", "gitlab.com")
    assert read_git_remotes(str(project)) == read_git_remotes(str(project / "sub")) == remotes
    linked = project / ".git" / "worktrees" / "w"
    linked.mkdir(parents=True)
    (linked / "commondir").write_text("../..\n")
    work_tree = project.parent / "w"
    work_tree.mkdir()
    (work_tree / ".git").write_text(f"gitdir: {linked}\n")
    assert read_git_remotes(str(work_tree)) == remotes


async def test_one_yes_allows_all_git_remotes_of_the_project(project):
    person = Person(git="once")
    async with open_rights(person) as rights:
        for host, port in (("github.com", 22), ("git.corp.example", 2222), ("gitlab.com", 443)):
            assert await rights.decide(request(host, port, make_turn(), str(project))) == ""
        await rights.decide(request("git.corp.example", 443, make_turn(), str(project)))
    assert [name for name, _ in person.asked] == ["git remotes", "git.corp.example"]


async def test_the_only_git_remote_is_asked_about_by_its_name(project):
    (project / ".git" / "config").write_text('[remote "origin"]\nurl = https://github.com/me/x\n')
    person = Person(github="once")
    async with open_rights(person) as rights:
        assert await rights.decide(request("github.com", turn=make_turn(), workdir=str(project))) == ""
    assert person.asked == [("github.com", "connects to github.com, a git remote of the project")]


def test_registries_of_the_user_are_found_in_variables():
    environment = {
        "PIP_INDEX_URL": "https://me:pw@pip.corp.example:8443/simple",
        "PIP_EXTRA_INDEX_URL": "https://a.example/simple https://b.example/simple",
        "GOPROXY": "https://go.example,direct",
        "CARGO_REGISTRIES_CRATES_IO_INDEX": "sparse+https://cargo.example/",
        "OTHER": "https://other.example",
    }
    assert find_configured_registries(environment) == (
        "pip.corp.example:8443", "a.example", "b.example", "go.example", "cargo.example",
    )  # fmt: skip


async def test_many_connections_through_the_proxy_wait_for_one_answer():
    person = Person(**{"127": "once"})
    person.may_answer.clear()
    server = Server()
    turn = make_turn()
    async with server.listen() as at, open_rights(person) as rights:
        async with open_proxy(f"127.0.0.1:{at}", decide=rights.decide, scope=CommandScope("s1")) as (proxy, port):
            request = f"GET http://127.0.0.1:{at}/ HTTP/1.1\r\n\r\n".encode()
            assert b"nobody is available" in await exchange(port, request), "no turn yet"
            proxy.set_turn("s1", turn)
            async with asyncio.TaskGroup() as group:
                answers = [group.create_task(exchange(port, request)) for _ in range(20)]
                while not person.asked:
                    await asyncio.sleep(0.01)
                person.may_answer.set()
            assert [each.result() for each in answers] == [OK] * 20
            await rights.turn_ended(turn)
            assert b"the turn has ended" in await exchange(port, request)
    assert len(person.asked) == 1 and server.connections == 20


async def test_an_error_in_the_block_is_raised_as_it_is():
    with pytest.raises(KeyError):
        async with open_rights(Person()):
            raise KeyError


async def test_the_rule_for_a_host_is_known_without_a_question():
    person = Person()
    settings = {"allow": ("docs.example",), "deny": ("ads.example",)}
    async with open_rights(person, allowed=("10.0.0.1",), **settings) as rights:
        hosts = ("docs.example", "ads.example", "10.0.0.1", "other.example")
        assert [rights.rule(request(host, turn=make_turn())) for host in hosts] == ["allow", "deny", "allow", "ask"]
        assert rights.rule(request("other.example", turn=make_turn(trusted=True))) == "allow"
        assert rights.rule(request("ads.example", turn=make_turn(trusted=True))) == "deny"
    async with open_rights(person, default="deny") as rights:
        assert rights.rule(request("other.example")) == "deny"
    assert person.asked == []
