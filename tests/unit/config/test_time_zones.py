"""Time zones by name."""

import pytest

from alipes.config.time_zones import find_zone
from alipes.kernel.errors import ConfigError


def test_the_zone_of_a_city_is_suggested():
    with pytest.raises(ConfigError, match=r"'new york': did you mean America/New_York\?"):
        find_zone("new york")


def test_an_unknown_zone_is_refused():
    for name in ("Mars/Olympus", "../etc/passwd", "", "\0"):
        with pytest.raises(ConfigError, match="time zone"):
            find_zone(name)
