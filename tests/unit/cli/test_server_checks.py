"""What `alipes doctor` says about the facts of a PostgreSQL server."""

import pytest
from msgspec.structs import replace

from alipes.cli.server_checks import find_results
from alipes.kernel.store.cluster import ServerFacts

GOOD = ServerFacts(
    version="15.4",
    supported=True,
    schema=4,
    newest_schema=4,
    size=5_000_000,
    pooled=False,
    direct_pooled=False,
    standbys=(),
    synchronous_names="",
    synchronous_commit="on",
    clock_difference_s=0.01,
    workers=("w1 on here (pid 7; work)",),
    sessions=1,
    turns=2,
    messages=3,
)


def check(has_direct=False, has_folder=False, **changes):
    facts = replace(GOOD, **changes)
    found = find_results(facts, "postgresql://db/alipes", has_direct=has_direct, has_folder=has_folder)
    return {each.about: (each.state, each.says, each.advice) for each in found}


def test_a_good_server_passes():
    assert {state for state, _, _ in check().values()} == {"ok"}


@pytest.mark.parametrize(
    ("changes", "about", "state", "word"),
    [
        ({"supported": False, "version": "13.2"}, "database", "wrong", "13.2 is too old"),
        ({"schema": 9}, "database", "wrong", "newer alipes"),
        ({"schema": 2}, "database", "note", "migrations up to 4 are missing"),
        ({"schema": 0}, "database", "ok", "created on first use"),
        ({"pooled": True}, "pooler", "wrong", "connection pooler"),
        ({"pooled": True, "has_direct": True}, "pooler", "ok", "around it"),
        ({"pooled": True, "direct_pooled": True, "has_direct": True}, "pooler", "wrong", "store_direct"),
        ({"standbys": ("async",)}, "standbys", "note", "a failover loses"),
        ({"standbys": ("hidden",)}, "standbys", "note", "may not see"),
        ({"standbys": ("sync",), "synchronous_names": "*"}, "standbys", "ok", "commits wait for *"),
        (
            {"standbys": ("sync",), "synchronous_names": "*", "synchronous_commit": "local"},
            "standbys",
            "note",
            "do not wait",
        ),
        ({"clock_difference_s": -2.5}, "clock", "note", "2.5 s behind"),
        ({"workers": ()}, "workers", "note", "no worker is running"),
    ],
)
def test_each_finding_has_its_state(changes, about, state, word):
    found = check(**changes)[about]
    assert found[0] == state and word in found[1]


def test_a_clock_within_a_second_is_no_finding():
    assert "clock" not in check(clock_difference_s=0.9)


def test_several_workers_without_a_shared_folder_are_noted():
    several = ("w1 on here (pid 7; work)", "w2 on there (pid 8; work)")
    state, says, _ = check(workers=several)["folder"]
    assert state == "note" and "cluster.folder is not set" in says
    assert "folder" not in check() and "folder" not in check(workers=several, has_folder=True)
