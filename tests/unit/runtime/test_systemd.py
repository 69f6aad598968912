"""What systemd hears from us, over a real datagram socket."""

import asyncio
import os
import socket
import time

import pytest

from alipes.runtime.systemd import SystemdNotifier


@pytest.fixture
def systemd(tmp_path):
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as door:
        door.bind(str(tmp_path / "notify"))
        door.settimeout(5)
        yield door


def environ(door: socket.socket, **more: str) -> dict[str, str]:
    return {"NOTIFY_SOCKET": door.getsockname(), **more}


def test_each_word_is_one_datagram(systemd):
    notifier = SystemdNotifier(environ(systemd))
    notifier.ready("serving\nhere")
    assert systemd.recv(1000) == b"READY=1\nSTATUS=serving here"
    notifier.status("two turns")
    assert systemd.recv(1000) == b"STATUS=two turns"
    notifier.stopping("draining")
    assert systemd.recv(1000) == b"STOPPING=1\nSTATUS=draining"
    notifier.extend_timeout(1.5)
    assert systemd.recv(1000) == b"EXTEND_TIMEOUT_USEC=1500000"


def test_who_restarts_says_since_when(systemd):
    before = time.monotonic_ns() // 1000
    SystemdNotifier(environ(systemd)).reloading()
    reloading, stamp = systemd.recv(1000).decode().split("\n")
    assert reloading == "RELOADING=1"
    assert before <= int(stamp.removeprefix("MONOTONIC_USEC=")) <= time.monotonic_ns() // 1000


def test_an_abstract_socket_is_found():
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as door:
        name = f"alipes-test-{os.urandom(6).hex()}"
        door.bind(f"\0{name}")
        door.settimeout(5)
        SystemdNotifier({"NOTIFY_SOCKET": f"@{name}"}).status("heard")
        assert door.recv(1000) == b"STATUS=heard"


async def test_signs_of_life_come_in_half_the_time_they_are_waited_for(systemd):
    notifier = SystemdNotifier(environ(systemd, WATCHDOG_USEC="100000", WATCHDOG_PID=str(os.getpid())))
    assert notifier.interval == 0.05
    systemd.setblocking(False)
    loop = asyncio.get_running_loop()
    async with asyncio.TaskGroup() as group:
        living = group.create_task(notifier.send_watchdog_pings())
        for _ in range(3):
            assert await loop.sock_recv(systemd, 100) == b"WATCHDOG=1"
        living.cancel()


@pytest.mark.parametrize("wrong", [{}, {"WATCHDOG_USEC": "soon"}, {"WATCHDOG_USEC": "9", "WATCHDOG_PID": "1"}])
async def test_where_nobody_waits_for_a_sign_of_life_there_is_none(systemd, wrong):
    notifier = SystemdNotifier(environ(systemd, **wrong))
    assert notifier.interval == 0
    await notifier.send_watchdog_pings()


@pytest.mark.parametrize("path", ["", "relative", "/nowhere/at/all"])
def test_without_a_supervisor_nothing_happens(path):
    SystemdNotifier({"NOTIFY_SOCKET": path}).ready("serving")


def test_a_supervisor_that_does_not_read_is_not_waited_for(systemd):
    notifier = SystemdNotifier(environ(systemd))
    for _ in range(2000):
        notifier.status("x" * 1000)
