"""Taking over from the `alipes serve` that was there before: it is asked to leave, waited for, then ended."""

import os
import signal
import sys
import time
from collections.abc import Mapping
from contextlib import suppress

from alipes.config.settings import Settings
from alipes.kernel.errors import ConfigError
from alipes.runtime.claim import Holder, holder
from alipes.runtime.kin import VARIABLE

CLAIM = "serve.claim"
SPARE = 10.0
"""Seconds beyond its drain that the other has to leave."""


def succeed(settings: Settings, environ: Mapping[str, str]) -> None:
    """Return once nobody serves the home any more. Called before our own loop begins."""
    other = holder(settings.paths.run / CLAIM)
    if other is None or not other.pid:
        return
    if VARIABLE in environ and _descends_from(other.pid):
        raise ConfigError(
            f"this command runs inside the `alipes serve` it would replace (process {other.pid}), and would "
            f"end with it; say /restart in the chat, or `kill -HUP {other.pid}`"
        )
    sys.stderr.write(f"alipes: process {other.pid} at {other.address} is asked to leave\n")
    _signal(other, signal.SIGTERM)
    if not _gone(settings, other, settings.serve.drain + SPARE):
        sys.stderr.write(f"alipes: process {other.pid} does not leave, and is ended\n")
        _signal(other, signal.SIGKILL)
        if not _gone(settings, other, SPARE):
            raise ConfigError(f"process {other.pid} cannot be ended; look what it waits for")


def _gone(settings: Settings, other: Holder, seconds: float) -> bool:
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        now = holder(settings.paths.run / CLAIM)
        if now is None or now.pid != other.pid:
            return True
        time.sleep(0.02)
    return False


def _signal(other: Holder, number: signal.Signals) -> None:
    try:
        os.kill(other.pid, number)
    except ProcessLookupError:
        return
    except PermissionError as error:
        raise ConfigError(f"process {other.pid} belongs to somebody else, who must end it") from error


def _descends_from(pid: int) -> bool:
    at = os.getpid()
    with suppress(OSError, ValueError, IndexError):
        while at > 1:
            if at == pid:
                return True
            with open(f"/proc/{at}/stat") as file:
                at = int(file.read().rpartition(")")[2].split()[1])
    return False
