"""Endpoints for slash commands: the same table as in every front end; and the models to choose from."""

import os
from typing import Annotated, Literal, TypeAlias

from msgspec import Meta, Struct
from starlette.responses import Response

from alipes.core.app import App
from alipes.kernel.models import ModelFacts
from alipes.sessions.commands.context import (
    Action,
    CommandReply,
    CopyText,
    FollowJob,
    PutText,
    Quit,
    RunSetup,
    SendFile,
    ShowConversation,
)
from alipes.sessions.commands.registry import Command, known_commands, parse, run
from alipes.web.endpoint import ApiCall, ApiEndpoint, HttpProblem, json_response
from alipes.web.runs.lookup import Name, RunLookup, find_session

ActionType: TypeAlias = Literal["quit", "copy", "show", "file", "put", "setup", "follow"]


class CommandBody(Struct, frozen=True, forbid_unknown_fields=True):
    text: Annotated[str, Meta(min_length=2, max_length=100_000, pattern="^/")]
    """A command with its arguments, such as `/undo 2`."""


class ActionDocument(Struct, frozen=True, omit_defaults=True):
    """What is left for the client to do: `copy` the text, `show` a conversation, save a `file`, `put` the text into
    the input, `follow` a background process."""

    type: ActionType
    text: str = ""
    name: str = ""
    session: str = ""


class CommandResult(Struct, frozen=True, omit_defaults=True):
    text: str
    """What to show; plain lines."""
    failed: bool = False
    runs: tuple[str, ...] = ()
    """Runs that it started."""
    diff: bool = False
    """The text is a unified diff."""
    action: ActionDocument | None = None


class CommandDocument(Struct, frozen=True, omit_defaults=True):
    name: str
    args: str
    """Its arguments; optional ones in brackets."""
    help: str
    aliases: tuple[str, ...] = ()
    source: Literal["built-in", "plugin", "template"] = "built-in"
    group: str = ""
    """The head under which `/help` lists it."""
    stops_turn: bool = False
    """It ends the running turn."""
    run_once: bool = False
    """It must not run again if its message is delivered twice."""
    changes_transcript: bool = False
    """Messages that are shown may change or go: show the conversation from the start."""
    in_chats: bool = True
    """Chats list it."""


class CommandList(Struct, frozen=True):
    commands: tuple[CommandDocument, ...]


class SessionName(Struct, frozen=True):
    session: Name = ""
    """Name or id of a conversation."""


class ModelDocument(Struct, frozen=True, omit_defaults=True):
    name: str
    provider: str
    context: int | None = None
    """Context window in tokens."""
    input_price: float | None = None
    """US dollars per million tokens; null: unknown."""
    output_price: float | None = None


class ModelChoices(Struct, frozen=True):
    current: str
    """The model of the conversation, or the default."""
    default: str
    models: tuple[ModelDocument, ...]


class CommandEndpoints:
    def __init__(self, app: App, lookup: RunLookup) -> None:
        self._app, self._lookup = app, lookup
        self._store = app.store.api_runs

    @ApiEndpoint(
        "POST", "/v1/sessions/{id}/commands", "admin", body=CommandBody, answer=CommandResult, errors=(400, 409)
    )
    async def run(self, call: ApiCall) -> Response:
        """Run a slash command in a conversation, also in one of another surface."""
        body: CommandBody = call.body
        row = await find_session(self._store, call.caller, call.path["id"])
        place = await self._lookup.place(call.caller, row.id)
        inbound = place.make_inbound(f"command:{os.urandom(12).hex()}", "")
        context = self._app.context(inbound, local_files=False)
        parsed = parse(body.text, self._app.contributions)
        if parsed is None:
            raise HttpProblem(400, "this is not a command; send it as a run", code="command")
        return json_response(to_result(await run(context, parsed)))

    @ApiEndpoint("GET", "/v1/commands", "read", query=SessionName, answer=CommandList)
    async def list(self, call: ApiCall) -> Response:
        """List the slash commands: built-in ones, those of plugins, and templates."""
        return json_response(CommandList(tuple(map(_to_command, known_commands(self._app.contributions)))))

    @ApiEndpoint("GET", "/v1/model-choices", "read", query=SessionName, answer=ModelChoices, errors=(404,))
    async def models(self, call: ApiCall) -> Response:
        """List the models that a conversation can use, with their prices."""
        query: SessionName = call.query
        row = await find_session(self._store, call.caller, query.session) if query.session else None
        default = (await self._app.models.default()).model
        chosen = (row.model if row is not None else "") or default
        names = dict.fromkeys((chosen, default, *self._app.models.names()))
        shown = (name for name in names if not self._app.models.is_for_tests(name))
        models = tuple(_to_model(name, self._app.models.facts(name)) for name in shown)
        return json_response(ModelChoices(chosen, default, models))


def _to_command(command: Command) -> CommandDocument:
    return CommandDocument(
        command.name,
        command.hint,
        command.help,
        command.aliases,
        "template" if command.template is not None else "plugin" if command.plugin else "built-in",
        command.group or "",
        command.stops_turn,
        command.run_once,
        command.changes_transcript,
        command.in_chats,
    )


def _to_model(name: str, facts: ModelFacts) -> ModelDocument:
    return ModelDocument(name, name.partition("/")[0], facts.window, facts.price_input, facts.price_output)


def to_result(reply: CommandReply) -> CommandResult:
    action = None if reply.action is None else _to_action(reply.action)
    return CommandResult(reply.text, reply.failed, reply.turns, reply.diff, action)


def _to_action(action: Action) -> ActionDocument:
    match action:
        case Quit():
            return ActionDocument("quit")
        case CopyText(text):
            return ActionDocument("copy", text)
        case ShowConversation(session):
            return ActionDocument("show", session=session)
        case SendFile(name, text):
            return ActionDocument("file", text, name)
        case PutText(text):
            return ActionDocument("put", text)
        case RunSetup():
            return ActionDocument("setup")
        case FollowJob(session, name):
            return ActionDocument("follow", name=name, session=session)
