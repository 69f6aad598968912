"""What an app opens first and closes last: the store, clients, models, sandbox and processes."""

from collections.abc import Mapping
from contextlib import AsyncExitStack
from pathlib import Path

from msgspec import Struct

from alipes.agent.approval.egress import AskEgress
from alipes.agent.auxiliary import BackgroundTasks
from alipes.agent.sandbox_network import CONNECT_FILE, SandboxNetwork, network_variables, open_sandbox_network
from alipes.config.environment import move_secrets_off_stack, process_environment
from alipes.config.paths import DEFAULT_PROFILE, PROFILE_VARIABLE
from alipes.config.sections.files import FilesConfig
from alipes.config.settings import Settings
from alipes.kernel.blobs import BlobStore
from alipes.kernel.errors import ConfigError
from alipes.kernel.ports import Provider
from alipes.providers.registry import Models
from alipes.runtime.blobs.chat_files import COPIES, ChatFiles
from alipes.runtime.blobs.folder import FolderBlobs
from alipes.runtime.http.clients import ClientScope
from alipes.runtime.log_file import log_secrets
from alipes.runtime.process_setup import protect_memory, wipe_environment
from alipes.runtime.processes.process_tree import OrphanGuard, open_orphan_guard
from alipes.runtime.redaction import SecretRegistry
from alipes.runtime.sandbox.namespaces import NetworkNamespaces
from alipes.runtime.watchdog import Watchdog
from alipes.store.open import open_home_store
from alipes.store.sql.store import Store
from alipes.tools.backends import ChosenBackend
from alipes.tools.common import child_environment, is_secret_variable
from alipes.tools.sandbox import SandboxExtras, make_backend
from alipes.tools.shell.background import BackgroundProcesses
from alipes.tools.shell.output import SpillFolder


class Resources(Struct, frozen=True):
    """What an app opens first and closes last."""

    store: Store
    scope: ClientScope
    models: Models
    guard: OrphanGuard
    network: SandboxNetwork
    namespaces: NetworkNamespaces
    backend: ChosenBackend
    background: BackgroundProcesses
    tasks: BackgroundTasks
    secrets: SecretRegistry
    sandbox_extras: SandboxExtras
    chat_files: ChatFiles


async def open_resources(
    stack: AsyncExitStack,
    settings: Settings,
    lent: Mapping[str, Provider] | None,
    ask: AskEgress,
    *,
    serves: bool = False,
) -> Resources:
    """`serves`: this process serves chats and the API, with the roles of the settings."""
    await stack.enter_async_context(Watchdog())
    store = await stack.enter_async_context(open_home_store(settings, serves=serves))
    scope = await stack.enter_async_context(ClientScope(settings.proxies, trust=settings.ca_file or None))
    models = await stack.enter_async_context(Models(settings, scope, lent))
    models.add_key_records(lambda: store.provider_keys)
    guard = await stack.enter_async_context(open_orphan_guard(settings.paths.run))
    secrets = log_secrets()
    secrets.add(*settings.secrets())
    spill = SpillFolder(settings.paths.spill, mask=secrets)
    network = await stack.enter_async_context(open_sandbox_network(settings, store.sources, ask, process_environment()))
    namespaces = NetworkNamespaces(network)
    stack.push_async_callback(namespaces.close_all)
    extras = SandboxExtras(network_variables(network), (CONNECT_FILE,))
    backend = await stack.enter_async_context(make_backend(settings, guard, namespaces, extras))
    backend.report_to(network.commands)
    background = await stack.enter_async_context(
        BackgroundProcesses(spill, backend=backend, records=store.background_processes)
    )
    tasks = await stack.enter_async_context(BackgroundTasks())
    return Resources(
        store=store,
        scope=scope,
        models=models,
        guard=guard,
        network=network,
        namespaces=namespaces,
        backend=backend,
        background=background,
        tasks=tasks,
        secrets=secrets,
        sandbox_extras=extras,
        chat_files=make_chat_files(settings, scope),
    )


def make_chat_files(settings: Settings, scope: ClientScope) -> ChatFiles:
    """Raises `ConfigError`."""
    config, max_bytes = settings.files, settings.files.max_mb * 1_000_000
    store: BlobStore | None = None
    if config.store == "s3":
        store = _make_bucket(config, scope, max_bytes)
    elif config.folder:
        store = FolderBlobs(Path(config.folder), max_bytes=max_bytes)
    cache_bytes = config.cache_mb * 1_000_000
    return ChatFiles(settings.paths.files / COPIES, store, max_bytes=max_bytes, cache_bytes=cache_bytes)


def _make_bucket(config: FilesConfig, scope: ClientScope, max_bytes: int) -> BlobStore:
    from alipes.runtime.blobs.s3 import S3Blobs, S3Bucket  # noqa: PLC0415

    if not (config.bucket and config.key.reveal() and config.secret.reveal()):
        variables = f"{config.key_env} and {config.secret_env}"
        raise ConfigError(f"files.store = s3 needs files.bucket and the variables {variables}")
    bucket = S3Bucket(
        config.endpoint or f"https://s3.{config.region}.amazonaws.com",
        config.bucket,
        config.region,
        config.key,
        config.secret,
        config.prefix,
        config.path_style,
    )
    client = scope.http("files", stall=config.timeout)
    return S3Blobs(bucket, client, max_bytes=max_bytes, timeout_s=config.timeout)


def hide_secrets(settings: Settings) -> None:
    """Remove secrets from the environment and memory image that other processes of the user can read."""
    secrets = frozenset(settings.secrets())
    wipe_environment(move_secrets_off_stack(lambda name, value: is_secret_variable(name, value, secrets)))
    if not settings.debuggable:
        protect_memory()


def tool_environment(settings: Settings) -> dict[str, str]:
    """The environment of commands. In a profile it names the profile's home, so that `alipes` there uses it too."""
    environ = process_environment()
    if environ.pop(PROFILE_VARIABLE, "") or settings.profile != DEFAULT_PROFILE:
        environ["ALIPES_HOME"] = str(settings.home)
    return child_environment(environ, settings.secrets())
