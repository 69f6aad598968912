"""The end of a run: its answer is delivered, a failure is retried or reported, and the next job starts."""

import asyncio
import logging
import os
import time
from collections.abc import Callable, Collection
from datetime import datetime
from pathlib import Path

import msgspec
from msgspec import Struct, structs

from alipes.config.paths import make_private
from alipes.features.schedules.job import JobRun, is_silent, retry_time, zone_of
from alipes.features.schedules.run import FinishedRun, NewRun, QueuedPost, Settlement
from alipes.features.schedules.store.runs import ScheduleRunStore
from alipes.gateway.outbound.policy import OutboundPolicy
from alipes.gateway.outbound.target import address_message
from alipes.kernel.errors import ConfigError, MessageRejected
from alipes.kernel.outbox import Media, Outbound
from alipes.kernel.turns import Address, Inbound, Turn
from alipes.runtime.http.public_fetch import FetchError, FetchRequest, PublicFetcher
from alipes.sessions.sessions import Sessions
from alipes.store.sql.people import PeopleStore

log = logging.getLogger(__name__)
MAX_POST_ATTEMPTS = 6
POST_RETRY_S = 30.0
"""Seconds before a web address is tried again; doubled each time."""
MAX_RESPONSE_BYTES = 100_000
_TIMED_OUT = "timeout"


class PostBody(Struct, frozen=True, omit_defaults=True):
    """The JSON that is sent to a web address."""

    job: str
    run: int
    due: float
    state: str
    text: str


class _Addressed:
    """Collects where one answer goes."""

    def __init__(self) -> None:
        self.outbounds: list[Outbound] = []
        self.notices: list[Inbound] = []
        self.posts: list[tuple[str, str, str]] = []
        self.problems: list[str] = []


class AnswerPlaces(Struct, frozen=True):
    """Where answers can go."""

    people: PeopleStore
    outbound: OutboundPolicy
    platforms: Callable[[], Collection[str]]
    folder: Path
    """For answers that are only kept as files."""
    fetcher: PublicFetcher | None = None
    """Sends to web addresses."""
    notify: Callable[[Outbound], None] = lambda _outbound: None
    """Tells the delivery of a new message."""


class RunSettler:
    """Settles ended runs, each once, and sends the answers that go to web addresses."""

    def __init__(
        self,
        runs: ScheduleRunStore,
        sessions: Sessions,
        places: AnswerPlaces,
        *,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._runs, self._sessions, self._places, self._clock = runs, sessions, places, clock

    async def settle_all(self) -> None:
        while finished := await self._runs.list_finished():
            for each in finished:
                await self.settle(each)

    async def settle(self, finished: FinishedRun) -> None:
        run, now = finished.run, self._clock()
        retry_at = retry_time(run, now) if run.state == "failed" else None
        text, media = self._find_text(finished)
        places = _Addressed()
        if retry_at is None and text:
            for number, target in enumerate(dict.fromkeys(run.job.targets)):
                await self._place(places, run, target, f"schedule:{run.number}:{number}", text)
        outbounds = tuple(structs.replace(each, media=media) for each in places.outbounds)
        retry = None
        if retry_at is not None:
            attempt, given = run.attempt + 1, (run.cause, run.given, run.given_untrusted)
            retry = NewRun(run.schedule, run.job, run.fire_at, retry_at, attempt, *given)
        answer = finished.answer if run.state == "ok" else ""
        settlement = Settlement(
            outbounds, tuple(places.notices), tuple(places.posts), retry, answer, finished.sources or run.job.untrusted
        )
        keys = await self._runs.settle(run, settlement)
        for problem in places.problems if keys is not None else ():
            log.warning("job %s: %s", run.job.name, problem)
            await self._runs.add_detail(run.number, f"({problem})")
        for outbound in outbounds if keys is not None else ():
            self._places.notify(outbound)
        for key in keys or ():
            await self._sessions.wake(key)

    def _find_text(self, finished: FinishedRun) -> tuple[str, tuple[Media, ...]]:
        """What is delivered; empty if nothing is."""
        run, name = finished.run, finished.run.job.name
        if run.state == "ok":
            turn = Turn(run.turn, run.session, Inbound("", run.address, "", "", workdir=run.job.workdir))
            text, media = self._places.outbound.answer_of(turn, finished.messages)
            return ("", ()) if is_silent(finished.answer) else (text or "(no text)", media)
        if run.state == "failed":
            attempts = f" after {run.attempt} attempts" if run.attempt > 1 else ""
            return f"The job {name} failed{attempts}: {run.detail or 'no reason given'}", ()
        if run.state == "stopped" and run.detail == _TIMED_OUT:
            return f"The job {name} was stopped after a long time without activity.", ()
        return "", ()

    async def _place(self, places: _Addressed, run: JobRun, target: str, id: str, text: str) -> None:
        """Add what is to be done for one target. If it cannot be reached, the text is kept as a file."""
        if target == "none":
            return
        if target == "files":
            await self._save(places, run, text)
        elif target.startswith(("http://", "https://")):
            body = PostBody(run.job.name, run.number, run.fire_at, run.state, text)
            places.posts.append((id, target, msgspec.json.encode(body).decode()))
        elif target == "origin" and run.job.origin is not None:
            self._place_at_origin(places, run, run.job.origin, id, text)
        else:
            try:
                name = "home" if target == "origin" else target
                outbound = await address_message(self._places.people, name, text, self._places.platforms())
                places.outbounds.append(structs.replace(outbound, id=id))
            except MessageRejected as error:
                places.problems.append(f"not delivered to {target}: {error}")
                await self._save(places, run, text)

    def _place_at_origin(self, places: _Addressed, run: JobRun, origin: Address, id: str, text: str) -> None:
        if origin.platform in self._places.platforms():
            places.outbounds.append(Outbound(id, origin, text))
            return
        note = f"Result of the job {run.job.name}:\n{text}"
        places.notices.append(Inbound(id, origin, run.job.owner, note, notice="kept"))

    async def _save(self, places: _Addressed, run: JobRun, text: str) -> None:
        moment = datetime.fromtimestamp(run.fire_at, zone_of(run.job))
        again = f"-{run.attempt}" if run.attempt > 1 else ""
        path = self._places.folder / run.job.name / f"{moment:%Y-%m-%dT%H-%M-%S}{again}.md"
        try:
            await asyncio.to_thread(_write, path, text)
        except (OSError, ConfigError) as error:
            places.problems.append(f"{path} could not be written: {error}")

    async def send_posts(self) -> None:
        """Send answers to web addresses; each may arrive twice after a crash, with the same id."""
        if (fetcher := self._places.fetcher) is None:
            return
        for post in await self._runs.due_posts(self._clock()):
            await self._send_post(fetcher, post)

    async def _save_post(self, post: QueuedPost) -> None:
        """Keep an answer that could not be sent as a file."""
        body = msgspec.json.decode(post.body, type=PostBody)
        run, places = await self._runs.find(body.run), _Addressed()
        if run is not None:
            await self._save(places, run, body.text)
        for problem in places.problems:
            log.warning("job %s: %s", body.job, problem)

    async def _send_post(self, fetcher: PublicFetcher, post: QueuedPost) -> None:
        headers = {"content-type": "application/json", "webhook-id": post.id.replace(":", "-")}
        request = FetchRequest(headers, post.body.encode())
        try:
            await fetcher.fetch(post.url, largest=MAX_RESPONSE_BYTES, request=request)
        except FetchError as error:
            if error.status is not None and 200 <= error.status < 300:
                await self._runs.finish_post(post)
                return
            gives_up = post.attempts + 1 >= MAX_POST_ATTEMPTS
            due = None if gives_up else self._clock() + POST_RETRY_S * 2.0**post.attempts
            await self._runs.finish_post(post, str(error), due)
            if gives_up or not post.attempts:
                log.warning("the answer of a job was not sent: %s", error)
                await self._runs.add_detail(int(post.id.split(":")[1]), f"(not delivered: {error})")
            if gives_up:
                await self._save_post(post)
            return
        await self._runs.finish_post(post)


def _write(path: Path, text: str) -> None:
    """Write a file as a whole, or not at all."""
    make_private(path.parent.parent)
    make_private(path.parent)
    partial = path.with_suffix(".part")
    partial.write_text(text.rstrip("\n") + "\n", encoding="utf-8", errors="replace")
    os.replace(partial, path)
