"""`alipes doctor`: everything alipes stands on, looked at once. It changes nothing and repairs nothing."""

import asyncio
import sys
import textwrap

import msgspec

from alipes import __version__
from alipes.cli import arguments, render
from alipes.cli.arguments import DoctorOptions
from alipes.cli.examination import Finding, examine_ground, examine_models, examine_store
from alipes.cli.screen import terminal_width
from alipes.config.settings import Settings
from alipes.providers.opening import Models
from alipes.runtime.clients import ClientScope, OpenClient

MARKS = {"ok": "ok  ", "note": "note", "wrong": "FAIL"}
INDENT = 18


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
    settings, findings = examine_ground()
    clients: tuple[OpenClient, ...] = ()
    if settings is not None:
        more, clients = asyncio.run(_look_inside(settings, options.live))
        findings += more
    return Report(__version__, sys.version.split()[0], findings, clients)


async def _look_inside(settings: Settings, live: bool) -> tuple[list[Finding], tuple[OpenClient, ...]]:
    findings = await examine_store(settings)
    async with (
        ClientScope(settings.proxies, trust=settings.ca_file or None) as scope,
        Models(settings, scope) as models,
    ):
        findings += await examine_models(settings, scope, models, live=live)
        return findings, scope.open_clients()


def _print(report: Report) -> None:
    print(f"alipes {report.version}, Python {report.python}\n")
    width = terminal_width(sys.stdout)
    room = width - INDENT
    for finding in report.findings:
        mark = MARKS[finding.state]
        if width and finding.state == "wrong":
            mark = f"{render.RED}{mark}{render.PLAIN}"
        first, *rest = [*_wrapped(finding.says, room), *_wrapped(finding.advice, room, "-> ")]
        print(f"{mark}  {finding.about:10}  {first}")
        for line in rest:
            print(f"{'':{INDENT}}{line}")
    for client in report.clients:
        where = f" {client.base_url}" if client.base_url else ""
        print(f"{'client':>{INDENT - 2}}  {client.name} ({client.kind}){where}: {client.requests} requests")
    wrong = sum(finding.state == "wrong" for finding in report.findings)
    print(f"\n{'All is well.' if report.well else f'{wrong} to be put right.'}")


def _wrapped(text: str, width: int, mark: str = "") -> list[str]:
    """Lines no wider than a terminal; elsewhere as they are."""
    if width < 40:
        return [mark + line for line in text.splitlines()]
    wrap = textwrap.TextWrapper(width - len(mark), break_long_words=False, break_on_hyphens=False).wrap
    return [mark + piece for line in text.splitlines() for piece in wrap(line)]
