"""`alipes approvals`: lists open questions and rights in force, shows one, and revokes rights."""

from collections.abc import Mapping

from alipes.config.loader import load_settings
from alipes.config.settings import Settings
from alipes.console import help_text, render
from alipes.console.common import print_json, print_list, run_in_store
from alipes.console.options import OptionParser
from alipes.kernel.errors import ConfigError, SessionError
from alipes.kernel.formatting import ID, format_count
from alipes.sessions.commands.approvals import NONE, describe, describe_origin, revoke, summarize
from alipes.store.sql.approvals import Approval
from alipes.store.sql.store import Store


def run(argv: list[str]) -> int:
    parser = OptionParser("alipes approvals", help_text.APPROVALS)
    args, named = parser.parse_with_words(argv)
    match named:
        case [] | ["list"]:
            _list(load_settings(), json=args.json)
        case ["show", id]:
            _show(load_settings(), id, json=args.json)
        case ["revoke"] if args.all:
            _revoke_all(load_settings())
        case ["revoke", id] if not args.all:
            return _revoke(load_settings(), id)
        case _:
            parser.error("use `list`, `show ID`, `revoke ID` or `revoke --all`")
    return 0


def _list(settings: Settings, *, json: bool) -> None:
    async def read(store: Store) -> tuple[tuple[Approval, ...], Mapping[str, str]]:
        found = await store.approvals.list_current()
        return found, await store.approvals.titles(found)

    found, titles = run_in_store(settings, read)
    rows = [(each.id[:ID], each.state, summarize(each), describe_origin(each, titles)) for each in found]
    print_list(found, ("ID", "STATE", "ALLOWS", "ASKED"), rows, json=json, empty=NONE)


def _show(settings: Settings, id: str, *, json: bool) -> None:
    approval = _find(settings, id)
    if json:
        print_json(approval)
    else:
        titles = run_in_store(settings, lambda store: store.approvals.titles((approval,)))
        print(render.sanitize(describe(approval, titles)))


def _revoke(settings: Settings, id: str) -> int:
    approval = _find(settings, id)

    async def act(store: Store) -> str:
        return await revoke(store.approvals, approval)

    if problem := run_in_store(settings, act):
        print(problem)
        return 1
    print(f"Revoked: {render.sanitize(summarize(approval))}")
    return 0


def _revoke_all(settings: Settings) -> None:
    count = run_in_store(settings, lambda store: store.approvals.revoke_all())
    print(f"Revoked {format_count(count, 'approval')}.")


def _find(settings: Settings, id: str) -> Approval:
    try:
        return run_in_store(settings, lambda store: store.approvals.find(id))
    except SessionError as error:
        raise ConfigError(str(error)) from None
