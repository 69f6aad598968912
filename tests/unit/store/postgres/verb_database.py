"""A small database for tests of the verbs: one connection, one thread, one `apply` for all calls of a step."""

import asyncio
import itertools
from asyncio import Future
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from functools import partial

import msgspec
import psycopg

from alipes.store.ports.cluster import WriteCounts
from alipes.store.postgres.database import encode_calls
from alipes.store.postgres.migrate import migrate

APPLY = "SELECT apply(%s, %s, %s::jsonb, %s)"


class PlainConnection:
    """Takes `?` for placeholders."""

    def __init__(self, db):
        self._db = db

    def execute(self, sql, values=()):
        return self._db.execute(sql.replace("?", "%s"), values)


class GroupedCalls:
    """`VerbDatabase` without reconnects and without other writes."""

    def __init__(self, worker, db, thread):
        self.worker, self.db, self._thread = worker, db, thread
        self._batches, self._queue, self._busy = itertools.count(1), [], False
        self.round_trips, self.counts = 0, WriteCounts()

    def call(self, verb, key, args, *, sync=True):
        loop = asyncio.get_running_loop()
        future: Future = loop.create_future()
        self._queue.append(((verb, key, *args), sync, future))
        if not self._busy:
            self._busy = True
            loop.call_soon(loop.call_soon, self._send)
        return future

    async def read(self, work):
        self.round_trips += 1
        loop = asyncio.get_running_loop()
        while self._queue or self._busy:
            await asyncio.wait([self._queue[-1][2]] if self._queue else [loop.run_in_executor(self._thread, int)])
        return await loop.run_in_executor(self._thread, work, PlainConnection(self.db))

    async def read_statement(self, work):
        return await self.read(work)

    async def look(self, verb, *args):
        calls = encode_calls([(verb, *args)])
        (results,) = await self.read(lambda db: db.execute("SELECT look(?)", (calls,)).fetchone())
        return msgspec.json.decode(results)[0]

    def _send(self):
        queue, self._queue = self._queue[:256], self._queue[256:]
        self._busy = bool(queue)
        if queue:
            calls = encode_calls([call for call, _, _ in queue])
            sync = any(sync for _, sync, _ in queue)
            self.round_trips += 1
            work = partial(self._apply, next(self._batches), calls, sync)
            loop = asyncio.get_running_loop()
            self._thread.submit(work).add_done_callback(
                lambda done: loop.call_soon_threadsafe(self._finish, queue, done)
            )

    def _apply(self, batch, calls, sync):
        (found,) = self.db.execute(APPLY, (self.worker, batch, calls, sync), prepare=True).fetchone()
        results = msgspec.json.decode(found)
        for (verb, *_), result in zip(msgspec.json.decode(calls), results, strict=True):
            if verb == "claim" and result and result[0] != "held":
                self.round_trips += 1
                load = encode_calls([("load", result[0])])
                result += msgspec.json.decode(self.db.execute("SELECT look(%s)", (load,)).fetchone()[0])
        return results

    def _finish(self, queue, done):
        error = done.exception()
        for place, (_, _, future) in enumerate(queue):
            if error is not None:
                future.set_exception(error)
            else:
                future.set_result(done.result()[place])
        self._send()

    async def wait_synced(self, patience_s=0.0):
        pass


@asynccontextmanager
async def open_calls(url, worker):
    with psycopg.connect(url, autocommit=True) as db, ThreadPoolExecutor(1) as thread:
        migrate(db)
        yield GroupedCalls(worker, db, thread)
