"""The app that the importable modules act for: the last one that opened a Hermes plugin."""

from alipes.compat.hermes.bridge import Bridge

_BRIDGES: list[Bridge] = []


class NotAvailable(NotImplementedError):
    """Hermes has this function and alipes does not; the message names it."""

    def __init__(self, what: str, instead: str = "") -> None:
        super().__init__(f"{what} is not available in alipes" + (f"; {instead}" if instead else ""))


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


def bridge() -> Bridge:
    """Raises RuntimeError if no plugin is open."""
    if not _BRIDGES:
        raise RuntimeError("no Hermes plugin is open, so there is no app to use")
    return _BRIDGES[-1]
