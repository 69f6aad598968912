"""Commands that exist only in chats, and built-in commands that show less in a chat."""

from alipes.gateway.live_view import LiveViews
from alipes.gateway.people import Access, approve
from alipes.gateway.platform_runner import PlatformState
from alipes.gateway.questions import ChatQuestions
from alipes.kernel.formatting import format_ago, format_columns, format_excerpt
from alipes.kernel.outbox import lane
from alipes.kernel.turns import ApprovalChoice
from alipes.plugins.registry import Contributions
from alipes.sessions.commands import conversation, history, search
from alipes.sessions.commands import registry as builtin
from alipes.sessions.commands.context import CommandContext, CommandReply
from alipes.sessions.commands.registry import Command, Parsed
from alipes.store.ports.archive import SessionFacts
from alipes.store.ports.search import EVERYTHING, SearchScope
from alipes.store.sql.people import Progress

PROGRESS_MODES: tuple[Progress, ...] = ("off", "short", "full")
_MAX_LISTED = 20
_ID_CHARS = 6


class ChatCommands:
    """`page_address`: where browsers reach the page; empty if only this machine's own do."""

    def __init__(self, access: Access, questions: ChatQuestions, views: LiveViews, *, page_address: str = "") -> None:
        self._access, self._questions, self._views, self._page_address = access, questions, views, page_address
        own = (
            Command("help", "[COMMAND]", "show the commands, or one of them", self._help),
            Command("approve", "[session|always] [all]", "approve the pending question", self._approve),
            Command("deny", "[all]", "deny the pending question", self._deny),
            Command("progress", "[off|short|full]", "set how much tool progress is shown", self._progress),
            Command("sethome", "", "make this the default chat of this platform", self._sethome, owners_only=True),
            Command("pair", "[CODE] [owner]", "list pairing requests, or approve one", self._pair, owners_only=True),
            Command("platforms", "", "show the status of the platforms", self._platforms, owners_only=True),
            Command("page", "[read]", "get a link that logs a browser in to the page", self._page, owners_only=True),
            Command("restart", "", "restart the gateway (running tasks resume)", self._restart, owners_only=True),
            Command("sessions", "[WORDS]", "list conversations, newest first", self._sessions),
            Command("search", search.HINT, "search the messages, or read around one", self._search),
            Command("resume", "NAME", "continue another conversation, by id or title", self._resume),
        )
        self._own = {command.name: command for command in own}

    def known(self, contributions: Contributions) -> tuple[Command, ...]:
        """All commands, each once."""
        known = builtin.known_commands(contributions)
        return (*self._own.values(), *(each for each in known if each.in_chats and each.name not in self._own))

    def parse(self, text: str, contributions: Contributions) -> Parsed | None:
        """The command in `text`; None for a message. An unknown word with a slash is an `UnknownCommand`."""
        head, *rest = text.split(maxsplit=1) or [""]
        name, args = head[1:].lower(), rest[0].strip() if rest else ""
        command = self._own.get(name) if head.startswith("/") else None
        if command is not None:
            return Parsed(command, args)
        parsed = builtin.parse(text, contributions)
        if isinstance(parsed, builtin.UnknownCommand):
            return builtin.unknown_command(name, args, self.known(contributions))
        return parsed

    async def _help(self, context: CommandContext, args: str) -> CommandReply:
        known = {command.name: command for command in self.known(context.contributions)}
        name = args.removeprefix("/").lower()
        if name and name not in known:
            hint = builtin.suggest_commands(name, known.values())
            return CommandReply(f"Unknown command /{name}.{hint} /help lists all commands.", failed=True)
        wanted = [known[name]] if name else known.values()
        return CommandReply(format_columns([(f"/{each.name} {each.hint}".rstrip(), each.help) for each in wanted]))

    async def _approve(self, context: CommandContext, args: str) -> CommandReply:
        words = args.lower().split()
        choice: ApprovalChoice = "always" if "always" in words else "session" if "session" in words else "once"
        return await self._answer(context, choice, everything="all" in words)

    async def _deny(self, context: CommandContext, args: str) -> CommandReply:
        return await self._answer(context, "no", everything="all" in args.lower().split())

    async def _answer(self, context: CommandContext, choice: ApprovalChoice, *, everything: bool) -> CommandReply:
        sender = context.inbound.sender
        text = await self._questions.approve(context.inbound.address, choice, sender, everything=everything)
        return CommandReply(text or "There is nothing to approve.")

    async def _progress(self, context: CommandContext, args: str) -> CommandReply:
        address, people = context.inbound.address, self._access.people
        modes = ", ".join(PROGRESS_MODES)
        if not args:
            chosen = await people.progress(lane(address))
            now = f"Tool progress in this chat: {chosen}. " if chosen else ""
            return CommandReply(f"{now}Modes: {modes}.")
        mode = next((each for each in PROGRESS_MODES if each == args.lower()), None)
        if mode is None:
            return CommandReply(f"Unknown mode {format_excerpt(args, 20)}. Modes: {modes}.", failed=True)
        await people.set_progress(lane(address), mode)
        self._views.set_progress(address, mode)
        return CommandReply(f"Tool progress in this chat: {mode}.")

    async def _sethome(self, context: CommandContext, _args: str) -> CommandReply:
        address = context.inbound.address
        await self._access.people.set_default_chat(address)
        return CommandReply(f"This is now the default chat for {address.platform}.")

    async def _pair(self, _context: CommandContext, args: str) -> CommandReply:
        code, *more = args.split()[:2] or [""]
        if not code:
            pending = await self._access.people.list_requests()
            rows = [(each.platform, f"{each.name or each.person}, {format_ago(each.created)}") for each in pending]
            listed = format_columns(rows) + "\nApprove one with /pair CODE."
            return CommandReply(listed if rows else "No pairing requests.")
        role = more[0].lower() if more else "user"
        if role not in ("owner", "user"):
            return CommandReply("Usage: /pair CODE [owner]. Owners can pair others.", failed=True)
        person = await approve(self._access.people, code, "owner" if role == "owner" else "user")
        name = person.name or person.person
        return CommandReply(f"{name} now has access on {person.platform} (role: {person.role}).")

    async def _platforms(self, _context: CommandContext, _args: str) -> CommandReply:
        runners = self._views.runners.values()
        return CommandReply(format_columns([(each.name, _describe(each.state)) for each in runners]))

    async def _page(self, context: CommandContext, args: str) -> CommandReply:
        if not await self._sees_everything(context):
            return CommandReply("/page works only in an owner's private chat.", failed=True)
        if not self._page_address:
            why = "No address is set at which your browser reaches the page. Set page.address; see docs/page.md."
            return CommandReply(why, failed=True)
        if args not in ("", "read"):
            return CommandReply("Usage: /page [read]. With read, the browser can change nothing.", failed=True)
        code = await context.store.browsers.add_code("read" if args else "admin")
        link = code.link(self._page_address)
        return CommandReply(f"Open this link within five minutes. It logs one browser in, once:\n{link}")

    async def _restart(self, _context: CommandContext, _args: str) -> CommandReply:
        return CommandReply("Restarting. Running tasks will resume in a moment.")

    async def _sessions(self, context: CommandContext, args: str) -> CommandReply:
        if await self._sees_everything(context):
            return await history.sessions(context, args)
        here = await context.store.archive.sessions(_MAX_LISTED, args, scope=_own_scope(context))
        lines = [f"{each.id[:_ID_CHARS]}  {format_ago(each.updated)}  {_title(each)}" for each in here]
        if not lines:
            return CommandReply("No conversations in this chat.")
        return CommandReply("\n".join([*lines, "Use /resume ID to continue one."]))

    async def _search(self, context: CommandContext, args: str) -> CommandReply:
        scope = EVERYTHING if await self._sees_everything(context) else _own_scope(context)
        return await search.search(context, args, scope=scope)

    async def _resume(self, context: CommandContext, args: str) -> CommandReply:
        if args and not await self._sees_everything(context):
            found = await context.store.archive.find_own(args, context.key)
            if len(found) != 1:
                return CommandReply(f"No conversation in this chat matches {format_excerpt(args)}.", failed=True)
            args = found[0]
        return await conversation.resume(context, args)

    async def _sees_everything(self, context: CommandContext) -> bool:
        """True for an owner in a direct chat: only there conversations of other chats are shown."""
        address = context.inbound.address
        owner = await self._access.role(address.platform, context.inbound.sender) == "owner"
        return owner and address.chat_type == "dm"


def _describe(state: PlatformState) -> str:
    since = f"{state.condition}, since {format_ago(state.since)}".replace("since just now", "just now")
    problems = [each for each in (state.cause, state.sending and f"sending: {state.sending}") if each]
    return ": ".join([since.removesuffix(" ago"), "; ".join(problems)] if problems else [since])


def _own_scope(context: CommandContext) -> SearchScope:
    return SearchScope(key=context.key)


def _title(facts: SessionFacts) -> str:
    return format_excerpt(facts.title or "(no title)")[1:-1]
