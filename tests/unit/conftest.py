"""The fixtures that the suites of file tools share."""

from tests.world.workshop import call, places, work  # noqa: F401
