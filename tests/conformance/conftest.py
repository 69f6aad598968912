"""The surfaces of the conformance suite. Each conversation runs on the loop of its surface's world."""

from collections.abc import Iterator, Mapping
from inspect import iscoroutinefunction

import pytest

from alipes.testing.leaks import LeakCheck, LeakProbe
from tests.conformance.discord import Discord
from tests.conformance.editor import Editor
from tests.conformance.email import Email
from tests.conformance.irc import Irc
from tests.conformance.matrix import Matrix
from tests.conformance.plugin import Plugin
from tests.conformance.scripted_model import ScriptedModel
from tests.conformance.slack import Slack
from tests.conformance.surface import Room, Surface
from tests.conformance.telegram import Telegram, Webhook
from tests.conformance.terminal import Terminal

SURFACES: tuple[type[Surface], ...] = (Telegram, Webhook, Discord, Slack, Irc, Email, Matrix, Plugin, Terminal, Editor)
"""Every surface runs every conversation; a new one joins by one line."""


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "needs(*what): what a surface must have for the conversation")


OPEN_CHECKS: set[LeakCheck] = set()
"""The leak checks of the surfaces that are open."""


class SurfaceRunner:
    """Runs one surface and replaces it after a failed conversation."""

    def __init__(self, kind: type[Surface], folders: pytest.TempPathFactory, leaks: LeakCheck) -> None:
        self.kind, self._folders, self._leaks = kind, folders, leaks
        self._surface: Surface | None = None

    def open(self) -> Surface:
        if self._surface is not None and self._surface.spoilt:
            self.close()
        if self._surface is None:
            made = self.kind(self._folders.mktemp("on") / self.kind.name)
            self._leaks.begin()
            OPEN_CHECKS.add(self._leaks)
            made.open()
            self._surface = made
        return self._surface

    def close(self) -> None:
        surface, self._surface = self._surface, None
        if surface is not None:
            surface.close()
            OPEN_CHECKS.discard(self._leaks)
            self._leaks.verify()


@pytest.fixture(scope="package", params=SURFACES, ids=lambda kind: kind.name)
def runner(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, leak_probes: Mapping[str, LeakProbe]
) -> Iterator[SurfaceRunner]:
    made = SurfaceRunner(request.param, tmp_path_factory, LeakCheck(also=leak_probes))
    yield made
    made.close()


@pytest.fixture
def surface(request: pytest.FixtureRequest, runner: SurfaceRunner, leaks: LeakCheck) -> Iterator[Surface]:
    needed = [what for mark in request.node.iter_markers("needs") for what in mark.args]
    for what in needed:
        if what in runner.kind.cannot:
            pytest.skip(f"{runner.kind.name}: {runner.kind.cannot[what]}")
    with leaks.ignore_opened():  # its world lives longer than a conversation and is checked when it closes
        yield runner.open()


@pytest.fixture
def fake_model(surface: Surface) -> ScriptedModel:
    surface.fake_model.answers()
    return surface.fake_model


@pytest.fixture
def room(surface: Surface) -> Room:
    made: Room = surface.run(surface.room())
    return made


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    surface = pyfuncitem.funcargs.get("surface")
    if not isinstance(surface, Surface) or not iscoroutinefunction(pyfuncitem.obj):
        return None
    wanted = {name: pyfuncitem.funcargs[name] for name in pyfuncitem._fixtureinfo.argnames}
    surface.spoilt = True
    surface.run(pyfuncitem.obj(**wanted))
    surface.spoilt = False
    return True
