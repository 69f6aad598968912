"""The plan of one run, made from a seed: who writes what and when, and what fails. Pure values."""

import random

from msgspec import Struct, structs

VERBS = (
    *("echo", "echo", "echo", "act", "act", "act", "look", "both", "twice", "slow", "long", "long", "trip"),
    *("risk", "risk", "risk", "ask", "ask", "send", "apart"),
)
"""What the model is asked for: text, a write, reads, both, two steps, a slow answer, a long answer, a tool that
fails, one that needs approval, a question to the person, subagents that are waited for, and one in the
background."""
NET = {
    "sendMessage": ("refused", "lost", "reset", "cut", "mute", "429", "500", "502", "odd"),
    "editMessageText": ("refused", "cut", "mute", "429", "500"),
    "sendChatAction": ("reset", "429"),
    "getUpdates": ("refused", "reset", "mute", "500", "409", "odd"),
    "model": ("refused", "429", "500", "drop", "drop", "stall", "garbage", "odd"),
}
"""By verb, how a call fails. `cut` and `mute` take effect without an answer, `odd` is an unexpected error."""
PLUGIN = ("slow", "slow", "hang", "raise")
BUSY = ("queue", "queue", "interrupt", "steer")


SEND_AFTER = 3.0
"""Seconds after a /stop when the person sends the messages that it held."""


class UserAction(Struct, frozen=True):
    """Something a person does."""

    at: float
    chat: int
    kind: str
    """`say`, `album` (the same in two parts), `again` (the platform delivers the message a second time), `edit`,
    or a command's name."""
    text: str = ""
    of: int = 0
    """`again`, `edit`: which of the chat's messages."""


class Fault(Struct, frozen=True):
    """One failure."""

    kind: str
    """`crash`, `power`, `term`; `full`; `net`, `hook`."""
    nth: int
    """Counted in steps of the process, in writes, or in calls of this verb."""
    verb: str = ""
    how: str = ""


class PlannedJob(Struct, frozen=True):
    """A scheduled job that runs once."""

    name: str
    at: float
    prompt: str
    retries: int = 0


class Plan(Struct, frozen=True):
    seed: int
    busy: str = "queue"
    progress: str = "off"
    window: int = 0
    """Context window of the model in tokens; zero: unlimited."""
    actions: tuple[UserAction, ...] = ()
    faults: tuple[Fault, ...] = ()
    jobs: tuple[PlannedJob, ...] = ()

    @property
    def size(self) -> int:
        return len(self.actions) + len(self.faults) + len(self.jobs)


class PlanProfile(Struct, frozen=True):
    """How likely each kind of action and fault is; the default has all of them."""

    verbs: tuple[str, ...] = VERBS
    chats: tuple[int, ...] = (1, 1, 2)
    stop_chance: float = 0.2
    """Chance that a person writes /stop after a message."""
    crash_chance: float = 0.6
    """Chance that the process dies at least once."""
    fault_chance: float = 0.5
    """Chance that something outside fails."""
    endpoints: tuple[str, ...] = tuple(NET)
    fault_kinds: tuple[str, ...] = ()
    """How calls fail; empty: in every way."""
    exit_kinds: tuple[str, ...] = ("crash", "crash", "power", "term")
    crash_counts: tuple[int, ...] = (1, 1, 2, 3)
    crash_within: tuple[int, ...] = (100, 300, 600)
    """It dies within this many steps."""
    windows: tuple[int, ...] = (0, 0, 0, 0, 0, 0, 3000)
    job_chance: float = 0.2
    """Chance that there are scheduled jobs."""


DEFAULT_PROFILE = PlanProfile()


def plan(seed: int, profile: PlanProfile = DEFAULT_PROFILE) -> Plan:
    rng = random.Random(f"plan {seed}")
    actions = tuple(sorted(_actions(rng, profile), key=lambda action: action.at))
    return Plan(
        seed,
        busy=rng.choice(BUSY),
        progress=rng.choice(("off", "off", "short")),
        window=rng.choice(profile.windows),
        actions=actions,
        faults=tuple(_faults(rng, profile)),
        jobs=_jobs(random.Random(f"jobs {seed}"), profile),
    )


def _jobs(rng: random.Random, profile: PlanProfile) -> tuple[PlannedJob, ...]:
    """From a generator of their own, so that the rest of a seed does not depend on them."""
    if rng.random() >= profile.job_chance:
        return ()
    verbs = ("echo", "act", "look", "both", "twice", "slow")
    return tuple(
        PlannedJob(f"job{n}", rng.random() * 6, f"{rng.choice(verbs)} c9j{n}", rng.choice((0, 0, 2)))
        for n in range(1, rng.choice((1, 2, 3)) + 1)
    )


def without(plan: Plan, actions: set[int], faults: set[int]) -> Plan:
    """The plan without these actions and faults."""
    return structs.replace(
        plan,
        actions=tuple(each for n, each in enumerate(plan.actions) if n not in actions),
        faults=tuple(each for n, each in enumerate(plan.faults) if n not in faults),
    )


def _actions(rng: random.Random, profile: PlanProfile) -> list[UserAction]:
    actions = []
    for chat in range(1, rng.choice(profile.chats) + 1):
        at = rng.random() * 0.5
        for number in range(1, rng.choice((1, 1, 2, 3)) + 1):
            word = rng.choice(profile.verbs)
            kind = "album" if rng.random() < 0.05 else "say"
            actions.append(UserAction(at, chat, kind, f"{word} c{chat}m{number}", of=number))
            actions += _more(rng, chat, number, at, profile.stop_chance)
            at += rng.choice((0.01, 0.1, 1.0, 4.0)) * rng.random()
    return actions


def _more(rng: random.Random, chat: int, number: int, at: float, stop_chance: float) -> list[UserAction]:
    later = at + rng.choice((0.001, 0.05, 0.5, 2.0)) * rng.random()
    if rng.random() < stop_chance:
        return [UserAction(later, chat, "stop"), UserAction(later + SEND_AFTER, chat, "queue", "send")]
    chance = rng.random()
    if chance < 0.15:
        return [UserAction(later, chat, "again", of=number)]
    if chance < 0.2:
        return [UserAction(later, chat, "new")]
    if chance < 0.25:
        return [UserAction(later, chat, "edit", f"echo c{chat}e{number}", of=number)]
    if chance < 0.4:
        kind = rng.choice(("steer", "queue"))
        return [UserAction(later, chat, kind, f"{rng.choice(VERBS)} c{chat}{kind[0]}{number}")]
    if chance < 0.5:
        kind = rng.choice(("undo", "retry", "compress", "background"))
        return [UserAction(later, chat, kind, f"look c{chat}b{number}" if kind == "background" else "")]
    return []


def _faults(rng: random.Random, profile: PlanProfile) -> list[Fault]:
    faults = []
    if rng.random() < profile.crash_chance:
        for _ in range(rng.choice(profile.crash_counts)):
            step = rng.randint(10, rng.choice(profile.crash_within))
            faults.append(Fault(rng.choice(profile.exit_kinds), step))
    if rng.random() < profile.fault_chance:
        for _ in range(rng.randint(1, 4)):
            verb = rng.choice(profile.endpoints)
            faults.append(Fault("net", rng.randint(1, 4), verb, rng.choice(profile.fault_kinds or NET[verb])))
    if rng.random() < 0.1:
        faults.append(Fault("full", rng.randint(1, 40)))
    if rng.random() < 0.2:
        faults.append(Fault("hook", rng.randint(1, 20), how=rng.choice(PLUGIN)))
    return faults
