"""Which app the importable names speak for: the last one that opened a Hermes plugin. It knows no name."""

from alipes.compat.hermes.bridge import Bridge

_BRIDGES: list[Bridge] = []


class NotHere(NotImplementedError):
    """Something that the original has and this house has not, or not yet; the message names it."""

    def __init__(self, what: str, instead: str = "") -> None:
        super().__init__(f"{what}: this is not there in alipes yet" + (f"; {instead}" if instead else ""))


def bind(bridge: Bridge) -> None:
    unbind(bridge)
    _BRIDGES.append(bridge)


def unbind(bridge: Bridge | None = None) -> None:
    """Without a bridge, the last one."""
    if bridge is None:
        del _BRIDGES[-1:]
    elif bridge in _BRIDGES:
        _BRIDGES.remove(bridge)


def is_bound() -> bool:
    return bool(_BRIDGES)


def bridge() -> Bridge:
    """Raises RuntimeError when every plugin is closed."""
    if not _BRIDGES:
        raise RuntimeError("no Hermes plugin is open any more, so there is no house to speak to")
    return _BRIDGES[-1]
