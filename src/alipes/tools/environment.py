"""The environment of a child: the person's, without secrets, and quiet. It reads no environment itself."""

from collections.abc import Collection, Mapping

from alipes.config.masking import is_secret_name, looks_secret

QUIET = {
    "TERM": "dumb",
    "NO_COLOR": "1",
    "PAGER": "cat",
    "GIT_PAGER": "cat",
    "MANPAGER": "cat",
    "SYSTEMD_PAGER": "cat",
    "GIT_TERMINAL_PROMPT": "0",
    "GIT_EDITOR": "true",
}
"""No colours, no pager, no question: nobody is there to page or to answer."""


def is_hidden(name: str, value: str, secrets: Collection[str]) -> bool:
    """Is a variable named or shaped like a secret, or one of `secrets`?"""
    return is_secret_name(name) or value in secrets or looks_secret(value)


def child_environment(environ: Mapping[str, str], secrets: Collection[str] = ()) -> dict[str, str]:
    """`environ` for a command: less what is named or shaped like a secret or is one of `secrets`."""
    hidden = set(secrets)
    kept = {name: value for name, value in environ.items() if not is_hidden(name, value, hidden)}
    return {**kept, **QUIET}
