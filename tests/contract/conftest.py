"""The store that the contract suites of the ports use."""

from functools import partial

import pytest

from tests.world.stores import STORES


@pytest.fixture(params=STORES)
def opened(request, tmp_path):
    """Call it to open the store of one home; each call acts as another process."""
    return partial(STORES[request.param], tmp_path / "home")
