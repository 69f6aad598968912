"""Fixtures of the page: a server with a scripted model, and a browser that is logged in to it."""

from functools import partial

import pytest

pytest.importorskip("playwright.async_api", reason="playwright is not installed (make test)")

from playwright.async_api import expect

from tests.world.environment import LIMIT_S, require
from tests.world.page_site import open_site

expect.set_options(timeout=LIMIT_S * 1_000)  # five seconds are too few on a busy machine


@pytest.fixture(autouse=True)
def chromium():
    """Required before anything is open: a skip raised inside a task group would be an error."""
    return require("chromium")


@pytest.fixture
def site(tmp_path):
    """`async with site(script) as running:` serves the page; `running.log_in()` opens it in a browser."""
    return partial(open_site, tmp_path)
