"""Resource limits of sandboxed commands."""

import resource

from alipes.runtime.sandbox.policy import SandboxLimits


def resource_limits(limits: SandboxLimits) -> list[tuple[int, int]]:
    """The limits as numbers of `setrlimit` and their values."""
    found = {
        resource.RLIMIT_DATA: limits.memory_bytes,
        resource.RLIMIT_NPROC: limits.processes,
        resource.RLIMIT_FSIZE: limits.file_bytes,
        resource.RLIMIT_CPU: limits.cpu_seconds,
    }
    return [(kind, limit) for kind, limit in found.items() if limit]
