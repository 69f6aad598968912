"""The app that the importable modules act for: that of the profile whose code calls, if this process serves several;
else the last one that opened a Hermes plugin."""

from pathlib import Path

from alipes.compat.hermes.bridge import Bridge
from alipes.config.paths import find_home, has_own_environ

_BRIDGES: list[Bridge] = []


class NotAvailable(NotImplementedError):
    """Hermes has this function and alipes does not; the message names it."""

    def __init__(self, what: str, instead: str = "") -> None:
        super().__init__(f"{what} is not available in alipes" + (f"; {instead}" if instead else ""))


class UnscopedSecretError(RuntimeError):
    """This process serves several profiles, and the code that calls belongs to none of them."""


def bind(bridge: Bridge) -> None:
    unbind(bridge)
    _BRIDGES.append(bridge)


def unbind(bridge: Bridge | None = None) -> None:
    """Without a bridge, remove the last one."""
    if bridge is None:
        del _BRIDGES[-1:]
    elif bridge in _BRIDGES:
        _BRIDGES.remove(bridge)


def is_bound() -> bool:
    return bool(_BRIDGES)


def latest_home() -> Path:
    return _BRIDGES[-1].home


def bridge() -> Bridge:
    """Raises RuntimeError if no plugin is open; UnscopedSecretError if a thread that a plugin started calls and several
    profiles are served: it could be any of them."""
    if not _BRIDGES:
        raise RuntimeError("no Hermes plugin is open, so there is no app to use")
    if not has_own_environ():
        if _BRIDGES[-1].is_one_of_several:
            raise UnscopedSecretError("cannot determine which profile is calling: use asyncio.to_thread")
        return _BRIDGES[-1]
    home = find_home()
    for each in reversed(_BRIDGES):
        if each.home == home:
            return each
    raise RuntimeError("no Hermes plugin of this profile is open, so there is no app to use")
