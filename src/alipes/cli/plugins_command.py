"""`alipes plugins`: which there are, and everything that can be done about them. It starts no turn."""

from alipes.cli.plugins import enabling, installing
from alipes.cli.plugins.describing import unset
from alipes.cli.plugins.installing import Consent
from alipes.cli.plugins.options import parse
from alipes.cli.plugins.sources import source_of
from alipes.config.reading import read


def run(argv: list[str]) -> int:
    options = parse(argv)
    consent = Consent(options.yes, not options.no_enable)
    match options.action:
        case "enable":
            return _enable(options.name)
        case "disable":
            return _disable(options.name)
        case "install":
            source = source_of(options.name, ref=options.ref, folder=options.folder, entry=options.entry)
            return installing.install(source, consent)
        case "update" if options.rollback:
            return installing.roll_back(options.name)
        case "update":
            return installing.update(options.name, consent)
        case "remove":
            return installing.remove(options.name, consent)
    return 0


def _enable(name: str) -> int:
    found = enabling.known(name)
    changed = enabling.enable(name)
    print(f"{name} is enabled, from the next start on." if changed else f"{name} is enabled already.")
    for variable in unset(found, read().variables):
        print(f"It needs {variable}, which is not set: `alipes config set {variable} -`")
    return 0


def _disable(name: str) -> int:
    changed = enabling.disable(name)
    print(f"{name} is disabled, from the next start on." if changed else f"{name} is not enabled.")
    return 0
