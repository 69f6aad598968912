"""The network of sandboxes: the egress proxy and the SSH agent, each with the rights of the running turn."""

import asyncio
import os
import socket
import sys
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager

from msgspec import structs

from alipes.agent.approval.egress import AskEgress, DeniedByPerson, EgressRights, find_configured_registries
from alipes.config.settings import Settings
from alipes.kernel.approvals import SSH_AGENT, host_source
from alipes.kernel.conversations import denial_reason
from alipes.kernel.messages import ToolCall
from alipes.kernel.turns import Turn
from alipes.runtime.http.egress import EgressRequest, format_authority
from alipes.runtime.http.egress_proxy import EgressProxy
from alipes.runtime.http.proxies import TlsTrust
from alipes.runtime.http.public_fetch import AddressGuard
from alipes.runtime.http.upstream import UpstreamConnector
from alipes.runtime.processes.socket_peers import find_namespaced_peers, parent_of
from alipes.runtime.sandbox import connect
from alipes.runtime.sandbox.agent_relay import SshAgentRelay, SshLogin
from alipes.runtime.sandbox.backend import CommandScope
from alipes.runtime.sandbox.namespaces import PROXY_PORT
from alipes.runtime.sandbox.policy import short_hash
from alipes.runtime.sandbox.proxy_environment import proxy_environment, ssh_proxy_command
from alipes.runtime.sandbox.running_commands import RunningCommands
from alipes.store.sql.approvals import UntrustedSourceStore

SSH_PORT = 22
CONNECT_SCRIPT = "/run/alipes/connect.py"
"""Where commands see the program that takes ssh through the proxy."""


class _OpenConnection:
    """A connection of a command that may use the SSH agent, while it is open."""

    def __init__(self, request: EgressRequest) -> None:
        self.request = request
        self.may_sign: bool | None = None
        """What the person said; None: not known yet."""
        self.login = b""
        """The session of SSH that was signed for: another one is another connection."""
        self.asking = asyncio.Lock()

    def was_made_by(self, pid: int) -> bool:
        """True if the process, or a child that it started for this, holds the other end; it reads /proc."""
        client = self.request.client
        return client is not None and any(pid in (peer, parent_of(peer)) for peer in find_namespaced_peers(client))


class SandboxNetwork:
    """Serves the connections of all sandboxes."""

    def __init__(
        self,
        rights: EgressRights,
        connector: UpstreamConnector,
        ask: AskEgress,
        *,
        agent: str,
        sources: UntrustedSourceStore,
    ) -> None:
        """`agent`: path of the user's SSH agent; empty if there is none. `sources`: records what turns have read."""
        self.rights, self._ask, self._agent, self._sources = rights, ask, agent, sources
        self.proxy = EgressProxy(self._decide, connector, track=self._track)
        self.relay = SshAgentRelay(agent, self._may_sign)
        self.commands = RunningCommands()
        self._connections: dict[str, list[_OpenConnection]] = {}
        """By conversation, if its commands may use the SSH agent."""
        self._asking: dict[str, int] = {}
        """By conversation, how many connections wait for a decision."""
        self._folders: dict[str, str] = {}

    @property
    def has_agent(self) -> bool:
        return bool(self._agent)

    def offer_agent(self, scope: CommandScope, scratch: str) -> str:
        """Let a conversation use the SSH agent; returns the name of the socket in its scratch directory."""
        self._folders[scope.session] = scratch
        return _socket_name(scope.session)

    def serve(self, listener: socket.socket, scope: CommandScope) -> None:
        self.proxy.serve(listener, scope)
        if folder := self._folders.get(scope.session):
            self.relay.serve(os.path.join(folder, _socket_name(scope.session)), scope)

    def set_turn(self, session: str, turn: Turn | None) -> None:
        self.proxy.set_turn(session, turn)
        self.relay.set_turn(session, turn)

    def take_refusals(self, session: str) -> tuple[str, ...]:
        return self.proxy.take_refusals(session)

    async def close_scope(self, session: str) -> None:
        await self.proxy.close_scope(session)
        await self.relay.close_scope(session)
        self._asking.pop(session, None)
        self._connections.pop(session, None)
        if folder := self._folders.pop(session, ""):
            _remove(os.path.join(folder, _socket_name(session)))

    async def turn_ended(self, turn: Turn) -> None:
        """Hook: rights of this turn only are withdrawn."""
        await self.rights.turn_ended(turn)

    async def agent_loop_stopped(self, turn_id: str) -> None:
        """Hook: the open questions of a turn that is stopped are withdrawn."""
        await self.rights.agent_loop_stopped(turn_id)

    def is_asking(self, session: str) -> bool:
        return bool(self._asking.get(session))

    async def _decide(self, request: EgressRequest) -> str:
        session, turn = request.scope.session, request.scope.turn
        self._asking[session] = self._asking.get(session, 0) + 1
        try:
            command = await self.commands.find(session, request.client)
            request = self._with_keys(
                structs.replace(request, by_command=True, command=command.text if command else "")
            )
            refusal = await self.rights.decide(request)
        finally:
            self._asking[session] -= 1
        if command is not None and isinstance(refusal, DeniedByPerson):
            command.child.refuse(refusal)
        # packages come from registries, not text to read
        if not refusal and turn is not None and request.port != SSH_PORT and not await self.rights.is_in_group(request):
            await self._sources.add(turn, host_source(request.host), f"text from {request.host}")
        return refusal

    def _with_keys(self, request: EgressRequest) -> EgressRequest:
        """With the SSH keys, if it is a connection of SSH and its command may use them."""
        return structs.replace(request, keys=request.port == SSH_PORT and request.scope.session in self._folders)

    @contextmanager
    def _track(self, request: EgressRequest) -> Iterator[None]:
        """Remember an open connection: the SSH agent is lent for it."""
        if request.scope.session not in self._folders:
            yield
            return
        connection = _OpenConnection(self._with_keys(request))
        connections = self._connections.setdefault(request.scope.session, [])
        connections.append(connection)
        try:
            yield
        finally:
            connections.remove(connection)

    async def _may_sign(self, scope: CommandScope, login: SshLogin) -> bool:
        """True if the program has made a connection for which the person lets it use the keys."""
        for connection in tuple(self._connections.get(scope.session, ())):
            if connection.login in (b"", login.session) and await asyncio.to_thread(connection.was_made_by, login.pid):
                async with connection.asking:
                    if connection.may_sign is None:
                        connection.may_sign = await self._ask_to_sign(connection.request)
                if connection.may_sign:
                    connection.login = login.session
                return connection.may_sign
        return False

    async def _ask_to_sign(self, request: EgressRequest) -> bool:
        """Ask the person, unless the question about the connection named the keys."""
        turn = request.scope.turn
        if turn is None or await self.rights.may_use_keys(request):
            return turn is not None
        place = format_authority(request.host, request.port)
        call = ToolCall(os.urandom(6).hex(), SSH_AGENT, {"host": request.host, "port": request.port})
        return not denial_reason(await self._ask(call, f"uses your SSH keys for {place}", turn))


@asynccontextmanager
async def open_sandbox_network(
    settings: Settings, sources: UntrustedSourceStore, ask: AskEgress, environ: Mapping[str, str]
) -> AsyncIterator[SandboxNetwork]:
    """`ask` asks the person of a turn."""

    async def is_tainted(turn: Turn, host: str) -> bool:
        return any(source != host_source(host) for source in await sources.list_read(turn))

    guard = AddressGuard(settings.fetch.allow)
    registries = find_configured_registries(environ)
    rights = EgressRights(settings.egress, guard, ask, registries=registries, is_tainted=is_tainted)
    connector = UpstreamConnector(guard, settings.proxies, TlsTrust(settings.ca_file or None))
    network = SandboxNetwork(rights, connector, ask, agent=environ.get("SSH_AUTH_SOCK", ""), sources=sources)
    async with rights, network.proxy, network.relay:
        yield network


def network_variables(network: SandboxNetwork) -> Callable[[CommandScope, str, bool], Mapping[str, str]]:
    """Returns the function that makes the variables of a command: given its scope, its scratch directory, and
    whether it may use the SSH agent."""
    ssh = ssh_proxy_command(PROXY_PORT, script=CONNECT_SCRIPT, python=sys.executable)
    common = proxy_environment(PROXY_PORT, ssh_proxy=ssh)

    def variables(scope: CommandScope, scratch: str, agent: bool) -> Mapping[str, str]:
        network.rights.remember_remotes(scope)  # before a command can add one
        if not agent or not network.has_agent:
            return common
        return common | {"SSH_AUTH_SOCK": f"/tmp/{network.offer_agent(scope, scratch)}"}

    return variables


CONNECT_FILE = (CONNECT_SCRIPT, connect.__file__)


def _socket_name(session: str) -> str:
    return f".ssh-agent-{short_hash(session)}"


def _remove(path: str) -> None:
    if os.path.lexists(path):
        os.unlink(path)
