"""What happens in one run, made from a seed: who writes what and when, and what goes wrong. Pure values."""

import random

from msgspec import Struct, structs

VERBS = (
    *("echo", "echo", "echo", "act", "act", "act", "look", "both", "twice", "slow", "long", "long", "trip"),
    *("risk", "risk", "risk", "ask", "ask", "send", "apart"),
)
"""What the model is asked for: words, something written, read, both, two steps, something slow, many words,
a tool that breaks, one that a person must allow, a question to a person, subagents that are waited for, and
one that works on in the background."""
NET = {
    "sendMessage": ("refused", "lost", "reset", "cut", "mute", "429", "500", "502", "odd"),
    "editMessageText": ("refused", "cut", "mute", "429", "500"),
    "sendChatAction": ("reset", "429"),
    "getUpdates": ("refused", "reset", "mute", "500", "409", "odd"),
    "model": ("refused", "429", "500", "drop", "drop", "stall", "garbage", "odd"),
}
"""By verb, how a call fails. `cut` and `mute` are done and not answered, `odd` is an error nobody expects."""
PLUGIN = ("slow", "slow", "hang", "raise")
BUSY = ("queue", "queue", "interrupt", "steer")


class Deed(Struct, frozen=True):
    """Something a person does."""

    at: float
    chat: int
    kind: str
    """`say`, `album` (the same in two parts), `again` (the platform brings the message a second time), `edit`,
    or a command's name."""
    text: str = ""
    of: int = 0
    """`again`, `edit`: which of the chat's messages."""


class Fault(Struct, frozen=True):
    """Something goes wrong, once."""

    kind: str
    """`crash`, `power`, `term`; `full`; `net`, `hook`."""
    nth: int
    """Of the steps of this process; of the writes; of the calls of this verb."""
    verb: str = ""
    how: str = ""


class Plan(Struct, frozen=True):
    seed: int
    busy: str = "queue"
    progress: str = "off"
    window: int = 0
    """Tokens that the model takes; zero: as many as there are."""
    deeds: tuple[Deed, ...] = ()
    faults: tuple[Fault, ...] = ()

    @property
    def size(self) -> int:
        return len(self.deeds) + len(self.faults)


class Taste(Struct, frozen=True):
    """How likely what is; the usual one has everything."""

    verbs: tuple[str, ...] = VERBS
    chats: tuple[int, ...] = (1, 1, 2)
    stops: float = 0.2
    """Chance that somebody writes /stop after a message."""
    dies: float = 0.6
    """Chance that the process dies at least once."""
    fails: float = 0.5
    """Chance that something outside fails."""
    wires: tuple[str, ...] = tuple(NET)
    hows: tuple[str, ...] = ()
    """How calls fail; empty: in every way there is."""
    ends: tuple[str, ...] = ("crash", "crash", "power", "term")
    deaths: tuple[int, ...] = (1, 1, 2, 3)
    within: tuple[int, ...] = (100, 300, 600)
    """Steps of a process in which it dies."""
    windows: tuple[int, ...] = (0, 0, 0, 0, 0, 0, 3000)


USUAL = Taste()


def plan(seed: int, taste: Taste = USUAL) -> Plan:
    dice = random.Random(f"plan {seed}")
    deeds = tuple(sorted(_deeds(dice, taste), key=lambda deed: deed.at))
    return Plan(
        seed,
        busy=dice.choice(BUSY),
        progress=dice.choice(("off", "off", "short")),
        window=dice.choice(taste.windows),
        deeds=deeds,
        faults=tuple(_faults(dice, taste)),
    )


def without(plan: Plan, deeds: set[int], faults: set[int]) -> Plan:
    """The same with less in it."""
    return structs.replace(
        plan,
        deeds=tuple(each for n, each in enumerate(plan.deeds) if n not in deeds),
        faults=tuple(each for n, each in enumerate(plan.faults) if n not in faults),
    )


def _deeds(dice: random.Random, taste: Taste) -> list[Deed]:
    deeds = []
    for chat in range(1, dice.choice(taste.chats) + 1):
        at = dice.random() * 0.5
        for number in range(1, dice.choice((1, 1, 2, 3)) + 1):
            word = dice.choice(taste.verbs)
            kind = "album" if dice.random() < 0.05 else "say"
            deeds.append(Deed(at, chat, kind, f"{word} c{chat}m{number}", of=number))
            deeds += _more(dice, chat, number, at, taste.stops)
            at += dice.choice((0.01, 0.1, 1.0, 4.0)) * dice.random()
    return deeds


def _more(dice: random.Random, chat: int, number: int, at: float, stops: float) -> list[Deed]:
    later = at + dice.choice((0.001, 0.05, 0.5, 2.0)) * dice.random()
    if dice.random() < stops:
        return [Deed(later, chat, "stop")]
    chance = dice.random()
    if chance < 0.15:
        return [Deed(later, chat, "again", of=number)]
    if chance < 0.2:
        return [Deed(later, chat, "new")]
    if chance < 0.25:
        return [Deed(later, chat, "edit", f"echo c{chat}e{number}", of=number)]
    if chance < 0.4:
        kind = dice.choice(("steer", "queue"))
        return [Deed(later, chat, kind, f"{dice.choice(VERBS)} c{chat}{kind[0]}{number}")]
    if chance < 0.5:
        kind = dice.choice(("undo", "retry", "compress", "background"))
        return [Deed(later, chat, kind, f"look c{chat}b{number}" if kind == "background" else "")]
    return []


def _faults(dice: random.Random, taste: Taste) -> list[Fault]:
    faults = []
    if dice.random() < taste.dies:
        for _ in range(dice.choice(taste.deaths)):
            step = dice.randint(10, dice.choice(taste.within))
            faults.append(Fault(dice.choice(taste.ends), step))
    if dice.random() < taste.fails:
        for _ in range(dice.randint(1, 4)):
            verb = dice.choice(taste.wires)
            faults.append(Fault("net", dice.randint(1, 4), verb, dice.choice(taste.hows or NET[verb])))
    if dice.random() < 0.1:
        faults.append(Fault("full", dice.randint(1, 40)))
    if dice.random() < 0.2:
        faults.append(Fault("hook", dice.randint(1, 20), how=dice.choice(PLUGIN)))
    return faults
