"""What every session of a lobby shares. Values and callables only: nothing here acts by itself."""

from collections.abc import Awaitable, Callable
from typing import TypeAlias

from msgspec import Struct

from alipes.agent.loop import Agent
from alipes.kernel.outbox import Outbound
from alipes.kernel.ports import SessionStore, TurnStore
from alipes.kernel.turns import Answer, ApprovalAnswered, Envelope, Event, Reply, Turn
from alipes.plugins.dispatch import Hooks
from alipes.sessions.subagents.running import Delegated

OpenAgent: TypeAlias = Callable[[Turn], Awaitable[Agent]]
"""Who lives the next turn; asked at its start, so a turn keeps what it began with."""


class Surroundings(Struct, frozen=True):
    turns: TurnStore
    sessions: SessionStore
    hooks: Hooks
    agent: OpenAgent
    delegated: Delegated
    """The turns that work for others."""
    publish: Callable[[Envelope], None]
    answer: Callable[[Answer], None]
    """Called with each word on an approval; whoever asked for it knows the question."""
    reply: Callable[[Reply], None]
    """The same with each answer to a question of the model's."""
    unanswered: Callable[[str], tuple[ApprovalAnswered, ...]]
    """Called with a turn that is over: the questions that its end answered. Each is given out once."""
    waits: Callable[[str], bool]
    """Does the turn wait for a person's word?"""
    rested: Callable[[str], None]
    """Called with the key whenever a session has nothing left to do."""
    pass_on: Callable[[str], Awaitable[None]]
    """Called with the key when another process turns out to hold the session."""
    keeps: Callable[[str], str] = lambda _session: ""
    """What of the session goes on between its turns, in a few words; unless empty, it stays in memory."""
    owes: Callable[[Turn, Event], tuple[Outbound, ...]] = lambda _turn, _event: ()
    """What a chat is owed for something that a turn told; written together with it."""
    leaves: Callable[[str, str], bool] = lambda _key, _turn: False
    """A session, and its last turn that is over: do we leave now, so that the next is for others to live?"""
    linger: float = 300.0
    """Seconds an idle session stays in memory."""
    silence: float = 0.0
    """Seconds after which a turn that tells nothing is stopped; zero: never."""
