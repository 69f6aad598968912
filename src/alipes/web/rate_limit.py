"""Rate limits of API callers and webhooks, counted together by the processes of a cluster."""

import asyncio
import math
import time
from collections.abc import Callable

from msgspec import Struct

from alipes.kernel.turns import Envelope, HomeChanged
from alipes.runtime.subscription import HomeSubscription
from alipes.store.ports.cluster import EventBus
from alipes.store.sql.store import Store
from alipes.web.endpoint import HttpProblem

MAX_BUCKETS = 1024
"""Buckets kept; the least recently used one is dropped first."""
EXCHANGE_INTERVAL_S = 1.0
UNSHARED_PART = 0.04
"""The part of a limit that a process may use before it tells the others."""


class _Bucket(Struct):
    left: float
    at: float
    rate: int
    unshared: int = 0
    """Requests that the other processes do not know of."""


class RateLimiter:
    """Token bucket per name. While `share` runs, the requests at other processes count too."""

    def __init__(self, name: str = "", *, clock: Callable[[], float] = time.monotonic) -> None:
        """`name`: limiters of the same name are counted together."""
        self._clock, self._key = clock, f"rates:{name}"
        self._buckets: dict[str, _Bucket] = {}
        self._bus: EventBus | None = None

    def check(self, name: str, rate: int) -> None:
        """Count one request. Raises `HttpProblem` if it exceeds `rate` requests per minute."""
        if rate <= 0:
            return
        bucket = self._fill(name, rate)
        if bucket.left < 1:
            seconds = math.ceil((1 - bucket.left) * 60 / rate)
            why = f"rate limit of {rate} requests/min exceeded; retry in {seconds} s"
            raise HttpProblem(429, why, code="rate_limited", headers={"retry-after": str(seconds)})
        bucket.left -= 1
        if self._bus is not None:
            bucket.unshared += 1
            if bucket.unshared >= rate * UNSHARED_PART:
                self._publish(self._bus, name, bucket)

    def left(self, name: str) -> float:
        """Requests that may be made now; for a name without requests zero."""
        bucket = self._buckets.get(name)
        return 0.0 if bucket is None else self._fill(name, bucket.rate).left

    async def share(self, store: Store) -> None:
        """Exchange the requests with the other processes until cancelled."""
        async with store.bus.subscribe(self._key, _OtherRequests(self, store.host)):
            self._bus = store.bus
            try:
                while True:
                    await asyncio.sleep(EXCHANGE_INTERVAL_S)
                    self.publish()
            finally:
                self._bus = None

    def publish(self) -> None:
        """Tell the others what they do not know yet."""
        for name, bucket in self._buckets.items():
            if self._bus is not None and bucket.unshared:
                self._publish(self._bus, name, bucket)

    def count_other(self, name: str, count: int, rate: int) -> None:
        """So many requests were made at another process."""
        bucket = self._fill(name, rate)
        bucket.left = max(bucket.left - count, -float(rate))

    def _publish(self, bus: EventBus, name: str, bucket: _Bucket) -> None:
        bus.publish(Envelope(self._key, "", HomeChanged("requests", name, status=f"{bucket.unshared} {bucket.rate}")))
        bucket.unshared = 0

    def _fill(self, name: str, rate: int) -> _Bucket:
        now = self._clock()
        bucket = self._buckets.pop(name, None) or _Bucket(rate, now, rate)
        self._buckets[name] = bucket
        if len(self._buckets) > MAX_BUCKETS:
            del self._buckets[next(iter(self._buckets))]
        bucket.left = min(float(rate), bucket.left + (now - bucket.at) * rate / 60)
        bucket.at, bucket.rate = now, rate
        return bucket


class _OtherRequests(HomeSubscription):
    """Counts what other processes publish."""

    def __init__(self, limiter: RateLimiter, own_name: str) -> None:
        super().__init__()
        self._limiter, self._own_name = limiter, own_name

    def put(self, envelope: Envelope, source: str) -> None:
        if source != self._own_name and isinstance(envelope.event, HomeChanged):
            count, _, rate = envelope.event.status.partition(" ")
            self._limiter.count_other(envelope.event.id, int(count), int(rate))
