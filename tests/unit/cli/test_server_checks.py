"""What `alipes doctor` says about the facts of a PostgreSQL server."""

import pytest
from msgspec.structs import replace

from alipes.cli.server_checks import check_folder, find_results
from alipes.store.ports.cluster import ServerFacts

GOOD = ServerFacts(
    version="15.4",
    supported=True,
    schema=4,
    newest_schema=4,
    needed_schema=0,
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


def check(has_direct=False, **changes):
    found = find_results(replace(GOOD, **changes), "postgresql://db/alipes", has_direct=has_direct)
    return {each.about: (each.state, each.says, each.advice) for each in found}


def test_a_good_server_passes():
    assert {state for state, _, _ in check().values()} == {"ok"}


@pytest.mark.parametrize(
    ("changes", "about", "state", "word"),
    [
        ({"supported": False, "version": "13.2"}, "database", "wrong", "13.2 is too old"),
        ({"schema": 9, "needed_schema": 8}, "database", "wrong", "newer alipes"),
        ({"schema": 5, "needed_schema": 4}, "database", "note", "can still work"),
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
    several = replace(GOOD, workers=("w1 on here (pid 7; work)", "w2 on there (pid 8; work)"))
    (found,) = check_folder("", several)
    assert found.state == "note" and "cluster.folder is not set" in found.says
    assert not [*check_folder("", GOOD)]


def test_the_shared_folder_must_be_there(tmp_path):
    (found,) = check_folder(str(tmp_path), GOOD)
    assert (found.about, found.state) == ("folder", "ok")
    (found,) = check_folder(str(tmp_path / "gone"), GOOD)
    assert found.state == "wrong" and "is not a directory" in found.says
