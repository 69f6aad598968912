"""Room for open files and connections: as many as this process may have. It opens none."""

import resource

WANTED = 65_536
"""More than thousands of listeners, and few enough for children that walk through all they might have."""


def make_room(wanted: int = WANTED) -> int:
    """Raise the limit of open files, which is low by default, as far as we may; what it is now."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    reached = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
    if soft != resource.RLIM_INFINITY and soft < reached:
        resource.setrlimit(resource.RLIMIT_NOFILE, (reached, hard))
        soft = reached
    return soft
