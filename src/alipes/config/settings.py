"""All settings, declared once: each field has its type, default, bounds and description.

The key table, the documentation, the checks and the names of environment variables are derived from
these structs (schema.py). Nothing outside `config` reads a file or a variable for a setting.
"""

from pathlib import Path
from typing import Annotated, Literal, TypeAlias, get_args

from msgspec import Struct

from alipes.config.keys import KeysConfig
from alipes.config.messengers import Messengers
from alipes.config.paths import Paths, profile_name
from alipes.config.platforms import PluginPlatformConfig
from alipes.config.sections.cluster import DATABASE_URL, ClusterConfig, with_password
from alipes.config.sections.files import FilesConfig
from alipes.config.sections.page import PageConfig
from alipes.config.time_zones import ZONE
from alipes.config.tools import ToolsConfig
from alipes.config.value_types import (
    AMOUNT,
    ENDPOINT,
    FLAG,
    GRANT_NAMES,
    HOST,
    HOST_PATTERNS,
    HOSTS,
    HOSTS_AND_PORTS,
    MODEL,
    MODELS,
    NAMES,
    ORIGINS,
    PATHS,
    PORT,
    SECONDS,
    VARIABLE,
    Setting,
    number,
    seconds,
    whole,
)
from alipes.features.agents.settings import AgentConfig
from alipes.features.browser.settings import BrowserConfig
from alipes.features.checkpoints.settings import CheckpointsConfig
from alipes.features.learning.settings import LearningConfig
from alipes.features.mcp.settings import McpConfig
from alipes.features.memory.settings import MemoryConfig
from alipes.features.schedules.settings import HeartbeatConfig, SchedulesConfig
from alipes.features.skills.settings import SkillsConfig
from alipes.features.update.settings import UpdateConfig
from alipes.features.web_search.settings import WebConfig
from alipes.kernel.messages import Json
from alipes.kernel.models import Endpoint, ModelFacts, Proxies, Secret
from alipes.kernel.turns import BusyMode, Effort

LogLevel: TypeAlias = Literal["debug", "info", "warning", "error"]
SecretStore: TypeAlias = Literal["file", "keyring"]
Task: TypeAlias = Literal["compaction", "titles", "vision", "approval", "web", "judge", "moa", "sampling", "learning"]
TASKS: tuple[Task, ...] = get_args(Task)
MIXTURE_PREFIX = "moa"
"""The provider part in the names of model mixtures: `moa/NAME`."""
AGENT_PREFIX = "agent"
"""The same of other agents: `agent/NAME`."""


class EmbeddedConfig(Struct, frozen=True):
    """The model that runs on this computer, without key or network."""

    gguf: Annotated[str, "A GGUF file for the embedded model. Empty: the small one that is installed with it."] = ""
    threads: Annotated[int, whole(0, 1024), "Threads the embedded model may use. 0: chosen automatically."] = 0
    context: Annotated[int, whole(512, 10_000_000), "Context window of the embedded model, in tokens."] = 8192


class TerminalConfig(Struct, frozen=True):
    theme: Annotated[
        Literal["auto", "dark", "light"],
        "Colours for a dark or a light background. auto: ask the terminal. `NO_COLOR` turns colours off.",
    ] = "auto"
    editing: Annotated[
        Literal["emacs", "vim"],
        "Editing keys of the input: as in Emacs and most shells, or as in Vim, where Esc leaves the insert mode first.",
    ] = "emacs"
    thinking: Annotated[bool, "Whether the terminal shows, shortened and dimmed, what the model is thinking."] = True
    title: Annotated[bool, "Whether the window title shows the folder and whether a turn is running."] = True
    notify: Annotated[
        Literal["auto", "bell", "osc9", "osc777", "off"],
        "How the terminal notifies you when a long turn is finished or needs an answer: with the bell or a desktop "
        "notification (OSC 9 or OSC 777). auto: the way your terminal is known to support, else the bell.",
    ] = "auto"
    notify_after: Annotated[
        float, seconds(0, 86_400), "Seconds that a turn must have taken before the terminal notifies you. 0: always."
    ] = 20.0
    status_command: Annotated[
        str,
        "A shell command whose first output line is added to the status line. It runs after each turn, gets the "
        "folder, model, context and cost as JSON on its standard input, and has two seconds. Empty: none.",
    ] = ""
    busy: Annotated[
        BusyMode,
        "What happens to a message you send while a turn is running: `steer` passes it to the running turn at its "
        "next step, `queue` answers it afterwards, `interrupt` stops the turn and answers it. `/busy` changes it for "
        "one conversation.",
    ] = "steer"


class ServeConfig(Struct, frozen=True):
    host: Annotated[str, HOST, "Address on which `alipes serve` listens."] = "127.0.0.1"
    port: Annotated[int, PORT, "Port on which `alipes serve` listens."] = 8742
    key_env: Annotated[str, VARIABLE, "Variable with the API key that callers must send."] = "ALIPES_API_KEY"
    drain: Annotated[
        float,
        seconds(0, 3600),
        "Seconds that running turns get to reach a safe point when `alipes serve` stops or restarts. "
        "Unfinished turns resume at the next start.",
    ] = 20.0
    key: Secret = Secret()
    profiles: Annotated[
        tuple[str, ...],
        Setting(
            NAMES,
            "Other profiles that `alipes serve` of the default profile serves too, each on its own `serve.port`. See "
            "`alipes profile`.",
        ),
    ] = ()


OnTimeout: TypeAlias = Literal["continue", "stop"]


class ApiConfig(Struct, frozen=True):
    hosts: Annotated[
        tuple[str, ...],
        HOSTS,
        "Host names under which `alipes serve` may be called, besides those of this machine, such as the name of a "
        "reverse proxy. Other names are refused, which prevents DNS rebinding.",
    ] = ()
    origins: Annotated[
        tuple[str, ...], ORIGINS, "Web origins that may call the API from a browser, as in https://HOST. Empty: none."
    ] = ()
    rate: Annotated[
        int, whole(0, 1_000_000), "Requests per minute for each key that has no limit of its own. 0: no limit."
    ] = 1200
    max_runs: Annotated[
        int,
        whole(0, 1_000_000),
        "Turns of API clients that may run or wait at the same time; more are answered with 429. 0: no limit.",
    ] = 256
    max_runs_per_key: Annotated[int, whole(0, 1_000_000), "The same for each key. 0: no limit."] = 128
    body: Annotated[int, whole(1000, 1_000_000_000), "Largest request body, in bytes."] = 20_000_000
    body_seconds: Annotated[float, seconds(0.1, 3600), "Seconds within which a request body must arrive."] = 30.0
    wait: Annotated[float, SECONDS, "Seconds that a request waits for its answer. Streams have no limit."] = 600.0
    on_timeout: Annotated[
        OnTimeout,
        "What happens with the turn of an OpenAI client that left after it had waited as long as it said: `continue`, "
        "so that its retry gets the answer, or `stop`, as whenever a client leaves.",
    ] = "continue"


class AuxiliaryConfig(Struct, frozen=True):
    """How one kind of auxiliary work is done."""

    model: Annotated[
        str,
        MODEL,
        "Model for an auxiliary task; `*` is compaction, titles, vision, approval, web, judge, moa, sampling or "
        "learning. Empty: the model of the conversation. `titles` are only generated if a model is set here.",
    ] = ""
    max_tokens: Annotated[int, whole(0, 10_000_000), "Longest answer, in tokens. 0: a default for the task."] = 0
    timeout: Annotated[float, SECONDS, "Seconds for the answer, retries included."] = 120.0
    effort: Annotated[Effort, "Reasoning effort. Empty: the model's default."] = ""


class Amount(Struct, frozen=True):
    """Money or tokens; the other one is None."""

    text: str
    dollars: float | None = None
    tokens: int | None = None


class SpendConfig(Struct, frozen=True):
    per_turn: Annotated[
        Amount | None,
        AMOUNT,
        "What one turn may spend, subagents and auxiliary models included, before you are asked. Input and output "
        "tokens both count. Empty: no limit.",
    ] = None
    per_session: Annotated[Amount | None, AMOUNT, "The same for all turns of a conversation."] = None
    per_day: Annotated[Amount | None, AMOUNT, "The same for all conversations since midnight."] = None


class CompactionConfig(Struct, frozen=True):
    at: Annotated[
        float,
        number(0, 0.95, "parts of the window"),
        "How full the context window may get before older messages are compacted. 0: only when the model reports "
        "that a conversation is too long.",
    ] = 0.8
    background: Annotated[bool, "Whether a conversation that will soon be too long is compacted between turns."] = True


class DelegationConfig(Struct, frozen=True):
    parallel: Annotated[int, whole(1, 64), "Subagents of one turn that run at the same time."] = 4
    depth: Annotated[
        int, whole(0, 8), "How deep subagents may be nested. 1: they have none of their own. 0: no subagents."
    ] = 2
    steps: Annotated[int, whole(1, 10_000), "Model calls of one subagent; then it summarises and ends."] = 40
    minutes: Annotated[
        float,
        number(0, 10_080, "minutes"),
        "Minutes after which a subagent is stopped; its output so far is kept. 0: never.",
    ] = 20.0
    schemas: Annotated[
        bool, "Whether `delegate_task` lists the parameter `schema`, by which reports are JSON documents."
    ] = False


class MixtureConfig(Struct, frozen=True):
    """A preset of models that answer the same question together."""

    models: Annotated[
        tuple[str, ...],
        MODELS,
        "Models that answer the same question in parallel. The table's name becomes a model: `[moa.best]` is "
        "`moa/best`.",
    ]
    aggregator: Annotated[str, MODEL, "The model that reads their answers and writes its own, with tools."]
    timeout: Annotated[float, seconds(0.1, 3600), "Seconds that the models get; later answers are ignored."] = 90.0


class FetchConfig(Struct, frozen=True):
    allow: Annotated[
        tuple[str, ...],
        HOSTS_AND_PORTS,
        "Hosts, as HOST or HOST:PORT, that tools may fetch from although they are on this machine or on a private "
        "network. All others there are refused, also behind a name or a redirect.",
    ] = ()


PERMISSION_MODES = ("ask", "auto")
"""`auto`: everything is approved in advance (`--yes`)."""


class SandboxAccess(Struct, frozen=True):
    """What commands may use in addition: everywhere, in a project, or in a permission mode."""

    read: Annotated[tuple[str, ...], PATHS, "Paths that sandboxed commands may read, such as data in your home."] = ()
    write: Annotated[tuple[str, ...], PATHS, "Paths that sandboxed commands may change, besides the project."] = ()
    environment: Annotated[
        tuple[str, ...], NAMES, "Variables that commands get although they look like secrets, such as `HF_TOKEN`."
    ] = ()
    network: Annotated[
        Literal["", "ask", "none", "open"],
        "Network of sandboxed commands: `ask` per host, `none`, or `open` (everything, also private networks and "
        "this machine). Empty: as in `[sandbox]`, where it means `ask`.",
    ] = ""
    grants: Annotated[
        tuple[str, ...],
        GRANT_NAMES,
        "What else sandboxed commands may use: `ssh-agent` (asked when it is used), `docker` (the Docker socket, which "
        "means full rights on this machine), `browser` (user namespaces, which Chromium needs).",
    ] = ("ssh-agent",)


class SandboxConfig(SandboxAccess, frozen=True):
    backend: Annotated[
        Literal["auto", "sandbox", "host", "ssh", "docker", "podman"],
        "Where commands run. `auto`: in the sandbox; if none works here, commands are refused. `host`: "
        "directly on this machine, with all your rights; dangerous commands are asked about.",
    ] = "auto"
    trust: Annotated[
        tuple[str, ...],
        PATHS,
        "Repositories whose git hooks run when commands use git. Hooks of all others are switched off.",
    ] = ()
    memory: Annotated[int, whole(0, 1_000_000), "Memory that one sandboxed command may use, in MB. 0: no limit."] = 0
    processes: Annotated[
        int, whole(0, 1_000_000), "Processes that one sandboxed command may have at a time. 0: no limit."
    ] = 1024
    file_size: Annotated[
        int, whole(0, 10_000_000), "Largest file that a sandboxed command may write, in MB. 0: no limit."
    ] = 20_000
    image: Annotated[str, "Image of the containers of the backends `docker` and `podman`."] = "debian:stable-slim"
    container_arguments: Annotated[tuple[str, ...], NAMES, "Further arguments for `docker run` or `podman run`."] = ()
    ssh: Annotated[str, "Destination of the backend `ssh`, as in `user@host` or a name in `~/.ssh/config`."] = ""
    ssh_workdir: Annotated[str, "Directory on that machine in which commands run. Empty: the home there."] = ""
    projects: dict[str, SandboxAccess] = {}
    """By project directory: a real one, neither `/` nor one that contains the home."""
    modes: dict[str, SandboxAccess] = {}
    """By permission mode: `ask`, or `auto` (with --yes)."""


class EgressConfig(Struct, frozen=True):
    """Which hosts commands and tools may connect to."""

    allow: Annotated[
        tuple[str, ...],
        HOST_PATTERNS,
        "Hosts that commands and tools may connect to without a question: HOST, `*.HOST` for its subdomains, or "
        "HOST:PORT. Without a port: 80, 443, 22 and 9418. `registries` means the public package registries. "
        "Private addresses also need `fetch.allow`.",
    ] = ()
    deny: Annotated[
        tuple[str, ...],
        HOST_PATTERNS,
        "Hosts that are always refused, on every port unless one is given; also with `--yes`. Stronger than `allow`.",
    ] = ()
    default: Annotated[
        Literal["ask", "deny", "allow"],
        "What happens with other hosts: `ask` asks you once for each, `deny` refuses them, `allow` allows them.",
    ] = "ask"


class ImagesConfig(Struct, frozen=True):
    model: Annotated[
        str,
        MODEL,
        "The model that generates images, as provider/model; its provider must support OpenAI's image endpoints. "
        "Empty: a plugin's model, or the tool is not offered.",
    ] = ""
    timeout: Annotated[float, seconds(1, 3600), "Seconds that one image may take."] = 180.0


class ClarifyConfig(Struct, frozen=True):
    timeout: Annotated[
        float,
        seconds(5, 86_400),
        "Seconds that a question from the model waits for your answer; then it continues without one.",
    ] = 600.0


class InstallConfig(Struct, frozen=True):
    auto: Annotated[
        bool,
        FLAG,
        "Whether packages that a feature lacks are installed at its first use without asking, also in chats and "
        "schedules. Otherwise you are asked at a terminal; elsewhere the command that installs them is named.",
    ] = False


class ApprovalsConfig(Struct, frozen=True):
    mode: Annotated[
        Literal["ask", "edits", "plan", "all"],
        "What conversations may do without asking. `ask`: asks before risky calls. `edits`: as `ask`, but edits "
        "files of the project without asking. `plan`: only reads; ends with a plan to accept. `all`: asks nothing; a "
        "few things stay forbidden. `/mode` changes it for one conversation.",
    ] = "ask"
    judge: Annotated[
        bool,
        "Whether a model (`[auxiliary.approval]`) looks at every act for which the rules need no approval, and may ask "
        "you about it. It can only add questions. If it fails or takes too long, you are asked.",
    ] = False


class CodeConfig(Struct, frozen=True):
    timeout: Annotated[float, seconds(1, 3600), "Seconds that one `execute_code` call may take."] = 300.0
    calls: Annotated[int, whole(0, 1000), "Tool calls that one `execute_code` call may make."] = 50


class DocumentsConfig(Struct, frozen=True):
    max_mb: Annotated[int, whole(1, 1000), "Largest document that is converted to text, in MB."] = 50
    max_pages: Annotated[int, whole(1, 100_000), "Pages, slides or sheets that are converted of one document."] = 2000
    timeout: Annotated[float, seconds(1, 600), "Seconds that the conversion of one document may take."] = 60.0
    memory_mb: Annotated[int, whole(64, 100_000), "Memory that the conversion of one document may use, in MB."] = 1024


class GatewayConfig(Struct, frozen=True):
    pairing: Annotated[
        bool,
        "Whether people without access get a pairing code, which you approve with `alipes pair CODE`. Otherwise their"
        " messages are ignored.",
    ] = True
    expiry: Annotated[
        float, seconds(60, 2_592_000), "Seconds after which an undelivered message is dropped; the chat is notified."
    ] = 43_200.0
    tries: Annotated[
        int,
        whole(1, 1000),
        "Delivery attempts for a message that the platform rejects; `alipes serve outbox` lists the failed ones.",
    ] = 8
    stt_command: Annotated[
        str,
        "A command that prints the transcript of a voice note; `{file}` is replaced by the file, which is otherwise "
        "the last argument. Without it and without `stt_url`, voice notes are declined.",
    ] = ""
    stt_url: Annotated[
        str,
        ENDPOINT,
        "URL of a transcription service compatible with OpenAI's, as in https://HOST/v1/audio/transcriptions.",
    ] = ""
    stt_model: Annotated[str, "Model of the transcription service."] = "whisper-1"
    stt_key_env: Annotated[str, VARIABLE, "Variable with its key. Empty: no key is sent."] = ""
    stt_key: Secret = Secret()


class PluginsConfig(Struct, frozen=True):
    enabled: Annotated[
        tuple[str, ...], NAMES, "Plugins to load; no others are loaded. `alipes plugins list` shows all."
    ] = ()
    disabled: Annotated[
        tuple[str, ...], NAMES, "Plugins and file hooks that are never loaded, even if enabled elsewhere."
    ] = ()
    required: Annotated[
        tuple[str, ...], Setting(NAMES, "Plugins without which alipes does not start; their gates deny when they fail.")
    ] = ()
    safe: Annotated[
        bool,
        Setting(
            FLAG,
            "Safe mode: load no plugin and no hook. `alipes --safe` does it for one start.",
            variable="ALIPES_SAFE",
        ),
    ] = False
    project: Annotated[
        bool,
        "Whether to also look for plugins in `.alipes/plugins` of the working directory. Plugins are code: enable "
        "this only where you trust the author.",
    ] = False
    unpinned: Annotated[
        tuple[str, ...],
        Setting(
            NAMES, "Plugins that are loaded even if their files changed since you accepted them: those that you write."
        ),
    ] = ()
    import_hermes: Annotated[bool, "Whether to also look for plugins in `~/.hermes/plugins`."] = False
    deadline: Annotated[float, SECONDS, "Seconds within which a plugin's hook must return."] = 5.0
    deadlines: dict[str, float] = {}
    """By hook name; overrides `deadline`."""
    entries: dict[str, dict[str, Json]] = {}
    """By plugin name, its own table as written in the file."""


class ShellHook(Struct, frozen=True):
    command: str
    matcher: str = ""
    """A regular expression for tool names; empty matches all."""
    timeout: float = 60.0


class Settings(Struct, frozen=True, kw_only=True):
    """All settings in effect. Made by `load_settings`, or directly in tests."""

    home: Path
    model: Annotated[
        str,
        MODEL,
        "The model that answers, as provider/model; a provider alone means its default model. Empty: chosen at start "
        "from the first API key found, else a local server, else the embedded model.",
    ] = ""
    fallback: Annotated[
        tuple[str, ...], MODELS, "Models to try in order when `model` is unreachable, out of credit or refuses."
    ] = ()
    effort: Annotated[Effort, "Reasoning effort of the model. Empty: its default."] = ""
    max_steps: Annotated[
        int,
        whole(1, 10_000),
        "Model calls per turn; then you are asked whether to continue, or the turn ends with a summary.",
    ] = 200
    max_tokens: Annotated[int, whole(1, 10_000_000), "Longest single answer, in tokens."] = 8192
    silence: Annotated[
        float, seconds(0, 604_800), "Seconds without activity after which a turn is stopped. 0: never."
    ] = 1800.0
    workdir: Annotated[str, "Working directory of tools. Empty: the directory alipes was started in."] = ""
    timezone: Annotated[
        str, ZONE, "Time zone of scheduled jobs, such as Europe/Berlin. Empty: that of this machine."
    ] = ""
    ca_file: Annotated[
        str,
        "A PEM file with trusted TLS certificates, instead of the system's. Empty: the file named by `SSL_CERT_FILE`,"
        " else the system's.",
    ] = ""
    local_servers: Annotated[
        bool, "Whether to look for Ollama, LM Studio, llama.cpp and vLLM on this computer when no model is set."
    ] = True
    log_level: Annotated[LogLevel, "Lowest severity that is written to the log file."] = "info"
    secret_store: Annotated[
        SecretStore,
        "Where keys and passwords that are not in the environment are kept. `file`: in `.env`. `keyring`: in `.env`, "
        "else in the keyring of the operating system, under the service `alipes` (`alipes/NAME` for a profile); needs "
        "`alipes install keyring`.",
    ] = "file"
    debuggable: Annotated[
        bool,
        "Whether other programs of the same user (debuggers, lsof, profilers) may inspect this process. Commands run "
        "by a model could then read secrets from its memory.",
    ] = False
    store: Annotated[
        str,
        DATABASE_URL,
        "Where conversations are stored. Empty: in SQLite, in the home. postgresql://USER@HOST/DATABASE: in PostgreSQL "
        "15 or newer, which many machines can share; needs `alipes install postgres`. The password belongs in .env, as "
        "does a whole URL with one (`ALIPES_STORE`). libpq's own ways (`.pgpass`, certificates) work too.",
    ] = ""
    store_direct: Annotated[
        str,
        DATABASE_URL,
        "The same database without a connection pooler, for locks and notifications. Empty: `store` is direct already.",
    ] = ""
    store_password_env: Annotated[str, VARIABLE, "Variable with the password of `store` and `store_direct`."] = (
        "ALIPES_STORE_PASSWORD"
    )
    store_password: Secret = Secret()
    cluster: ClusterConfig = ClusterConfig()
    embedded: EmbeddedConfig = EmbeddedConfig()
    terminal: TerminalConfig = TerminalConfig()
    keys: KeysConfig = KeysConfig()
    serve: ServeConfig = ServeConfig()
    providers: dict[str, Endpoint] = {}
    """Configured providers first, then every known one, with or without a key."""
    model_source: str = "config.toml"
    """Where `model` was set: the file, or the name of its variable."""
    models: dict[str, ModelFacts] = {}
    api: ApiConfig = ApiConfig()
    page: PageConfig = PageConfig()
    files: FilesConfig = FilesConfig()
    auxiliary: dict[str, AuxiliaryConfig] = {}
    """By task; tasks that are not listed use the defaults."""
    spend: SpendConfig = SpendConfig()
    compaction: CompactionConfig = CompactionConfig()
    delegation: DelegationConfig = DelegationConfig()
    moa: dict[str, MixtureConfig] = {}
    """Model mixtures by name."""
    agents: dict[str, AgentConfig] = {}
    """Other agents by name."""
    fetch: FetchConfig = FetchConfig()
    sandbox: SandboxConfig = SandboxConfig()
    egress: EgressConfig = EgressConfig()
    browser: BrowserConfig = BrowserConfig()
    images: ImagesConfig = ImagesConfig()
    clarify: ClarifyConfig = ClarifyConfig()
    approvals: ApprovalsConfig = ApprovalsConfig()
    install: InstallConfig = InstallConfig()
    code: CodeConfig = CodeConfig()
    mcp: McpConfig = McpConfig()
    update: UpdateConfig = UpdateConfig()
    web: WebConfig = WebConfig()
    checkpoints: CheckpointsConfig = CheckpointsConfig()
    skills: SkillsConfig = SkillsConfig()
    documents: DocumentsConfig = DocumentsConfig()
    schedules: SchedulesConfig = SchedulesConfig()
    heartbeat: HeartbeatConfig = HeartbeatConfig()
    memory: MemoryConfig = MemoryConfig()
    learning: LearningConfig = LearningConfig()
    messengers: Messengers = Messengers()
    platforms: dict[str, PluginPlatformConfig] = {}
    """Platforms of plugins by name; those not listed use the defaults."""
    gateway: GatewayConfig = GatewayConfig()
    plugins: PluginsConfig = PluginsConfig()
    tools: ToolsConfig = ToolsConfig()
    toolsets: dict[str, tuple[str, ...]] = {}
    """By platform, what the model may use there; a platform that is not listed may use everything."""
    hooks: dict[str, tuple[ShellHook, ...]] = {}
    """Shell hooks by hook name."""
    proxies: Proxies = Proxies()
    notes: tuple[str, ...] = ()
    """Remarks for the operator that are not errors."""
    hidden: tuple[Secret, ...] = ()

    @property
    def paths(self) -> Paths:
        return Paths(self.home, self.cluster.folder)

    @property
    def profile(self) -> str:
        """The name of the profile whose settings these are."""
        return profile_name(self.home)

    def store_urls(self) -> tuple[str, str]:
        """The URLs of the store and of its direct route, with the password; empty ones mean SQLite."""
        password = self.store_password.reveal()
        return with_password(self.store, password), with_password(self.store_direct, password)

    def auxiliary_for(self, task: str) -> AuxiliaryConfig:
        return self.auxiliary.get(task, AuxiliaryConfig())

    def secrets(self) -> tuple[str, ...]:
        """Values that must never reach a log or a screen, longest first."""
        return tuple(sorted({secret.reveal() for secret in self.hidden}, key=len, reverse=True))
