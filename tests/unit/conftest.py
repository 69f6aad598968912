"""The fixtures that the suites of file tools share."""

from tests.world.file_tools import call, places, work  # noqa: F401
