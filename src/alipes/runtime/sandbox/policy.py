"""What a sandboxed command may see, change and use: settings and a project turned into lists of paths."""

from msgspec import Struct


class SandboxLimits(Struct, frozen=True):
    """Resource limits of one command and its children. 0: no limit."""

    memory_bytes: int = 0
    processes: int = 0
    file_bytes: int = 0
    cpu_seconds: int = 0


class SandboxPolicy(Struct, frozen=True):
    """The view of one command. All paths are absolute, without links, and exist on this machine."""

    workdir: str
    """The project directory."""
    home: str
    """The user's home; commands see `private_home` at this path."""
    private_home: str
    """A directory on this machine for caches and settings of programs in the sandbox, one per project."""
    scratch: str
    """A directory on this machine that commands see as /tmp, one per conversation."""
    writable: tuple[str, ...] = ()
    """Also the project, unless it contains the home."""
    readable: tuple[str, ...] = ()
    """Paths below hidden ones that are visible, read-only: toolchains in the home, listed paths."""
    protected: tuple[str, ...] = ()
    """Paths below writable ones that are read-only: git hooks, CI files."""
    hidden: tuple[str, ...] = ()
    """Paths that do not exist for commands: the alipes home, secrets, sockets."""
    files: tuple[tuple[str, str], ...] = ()
    """Other files to show read-only: path as commands see it, and where it is."""
    environment: tuple[tuple[str, str], ...] = ()
    """Variables to set, in addition to those of the command."""
    limits: SandboxLimits = SandboxLimits()
    user_namespaces: bool = False
    """Whether commands may create user namespaces, which browsers need."""
