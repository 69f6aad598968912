"""`alipes doctor`: everything alipes stands on, looked at once. It changes nothing and repairs nothing."""

import asyncio
import sys

import msgspec

from alipes import __version__
from alipes.cli import arguments, findings
from alipes.cli.arguments import DoctorOptions
from alipes.cli.examination import examine_ground, examine_models, examine_store
from alipes.cli.findings import Finding
from alipes.cli.plugins.listing import examine_plugins
from alipes.config.settings import Settings
from alipes.providers.opening import Models
from alipes.runtime.clients import ClientScope, OpenClient


class Report(msgspec.Struct, frozen=True):
    version: str
    python: str
    findings: list[Finding]
    clients: tuple[OpenClient, ...]

    @property
    def well(self) -> bool:
        return all(finding.state != "wrong" for finding in self.findings)


def run(argv: list[str]) -> int:
    options = arguments.doctor(argv)
    report = _examine(options)
    if options.json:
        print(msgspec.json.encode(report).decode())
    else:
        _print(report)
    return 0 if report.well else 1


def _examine(options: DoctorOptions) -> Report:
    settings, found = examine_ground()
    clients: tuple[OpenClient, ...] = ()
    if settings is not None:
        found += examine_plugins(settings)
        more, clients = asyncio.run(_look_inside(settings, options.live))
        found += more
    return Report(__version__, sys.version.split()[0], found, clients)


async def _look_inside(settings: Settings, live: bool) -> tuple[list[Finding], tuple[OpenClient, ...]]:
    found = await examine_store(settings)
    async with (
        ClientScope(settings.proxies, trust=settings.ca_file or None) as scope,
        Models(settings, scope) as models,
    ):
        found += await examine_models(settings, scope, models, live=live)
        return found, scope.open_clients()


def _print(report: Report) -> None:
    print(f"alipes {report.version}, Python {report.python}\n")
    indent = findings.show(report.findings)
    for client in report.clients:
        where = f" {client.base_url}" if client.base_url else ""
        print(f"{'client':>{indent - 2}}  {client.name} ({client.kind}){where}: {client.requests} requests")
    findings.conclude(report.findings)
