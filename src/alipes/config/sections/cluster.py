"""Settings of the store and of the cluster."""

import re
from typing import Annotated, Literal, TypeAlias, cast, get_args
from urllib.parse import parse_qsl, quote, unquote, urlsplit

from msgspec import Struct

from alipes.config.urls import InvalidValue
from alipes.config.value_types import TEXT, Setting, ValueType, whole
from alipes.kernel.formatting import did_you_mean
from alipes.kernel.messages import Json

Role: TypeAlias = Literal["listen", "work", "web"]
ROLES: tuple[Role, ...] = get_args(Role)
_SCHEMES = ("postgresql", "postgres")
_FORM = "postgresql://USER@HOST:PORT/DATABASE"


def _database_url(value: object) -> str:
    """`value` as psycopg takes it; empty means SQLite."""
    url = str(TEXT.check(value)).strip()
    if not url:
        return ""
    scheme, mark, rest = url.partition("://")
    if not mark or scheme not in _SCHEMES:
        meant = " Empty means SQLite in the home" if scheme in ("sqlite", "file") or not mark else ""
        raise InvalidValue(f"must be the URL of a PostgreSQL database, as in {_FORM}.{meant}".removesuffix("."))
    if " " in rest:
        raise InvalidValue("contains spaces: write each as %20")
    try:
        parts = urlsplit(f"{_SCHEMES[0]}://{rest}")
        parse_qsl(parts.query, strict_parsing=bool(parts.query))
    except ValueError as error:
        raise InvalidValue(f"is not a valid URL ({error}): write it as in {_FORM}") from error
    if parts.fragment:
        raise InvalidValue("contains #: write it as %23")
    if not parts.path.strip("/") and "dbname=" not in parts.query and "service=" not in parts.query:
        raise InvalidValue(f"names no database: write it as in {_FORM}")
    return f"{_SCHEMES[0]}://{rest}"


def _roles(value: object) -> list[Json]:
    if not isinstance(value, list) or not all(isinstance(item, str) for item in value):
        raise InvalidValue('must be a list like ["listen", "work", "web"]')
    for item in value:
        if item not in ROLES:
            raise InvalidValue(f"contains {item!r}: use listen, work and web.{did_you_mean(item, ROLES)}".rstrip("."))
    if not value:
        raise InvalidValue("is empty: a worker needs at least one of listen, work and web")
    if len(set(value)) < len(value):
        raise InvalidValue("lists a role twice: remove one")
    return cast("list[Json]", [role for role in ROLES if role in value])


def url_password(url: str) -> str:
    """The password in the URL of a database; empty if it has none."""
    parts = urlsplit(url)
    in_query = dict(parse_qsl(parts.query)).get("password", "")
    return in_query or unquote(parts.password or "")


def with_password(url: str, password: str) -> str:
    """The URL with the password, unless it has one already."""
    if not url or not password or url_password(url):
        return url
    parts = urlsplit(url)
    user, at, hosts = parts.netloc.rpartition("@")
    if not at:
        mark = "&" if parts.query else "?"
        return f"{url}{mark}password={quote(password, safe='')}"
    secret = quote(password, safe="")
    return parts._replace(netloc=f"{user.rstrip(':')}:{secret}@{hosts}").geturl()


def without_password(url: str) -> str:
    """The URL for people and logs."""
    parts = urlsplit(url)
    user, at, hosts = parts.netloc.rpartition("@")
    query = re.sub(r"(^|&)(?:password|sslpassword)=[^&]*", "", parts.query).strip("&")
    return parts._replace(netloc=f"{user.partition(':')[0]}{at}{hosts}", query=query).geturl()


DATABASE_URL = ValueType("address of a database", _database_url)
ROLE_LIST = ValueType(
    "list of roles", _roles, lambda text: [word.strip() for word in text.split(",") if word.strip()], "list"
)


class ClusterConfig(Struct, frozen=True):
    """A process of `alipes serve` among many on one PostgreSQL store."""

    roles: Annotated[
        tuple[Role, ...],
        Setting(
            ROLE_LIST,
            "What this process does in a cluster: `listen` to messengers, `work` on turns, answer HTTP (`web`). Only "
            "with a PostgreSQL `store`; on SQLite a process does everything.",
        ),
    ] = ROLES
    folder: Annotated[
        str,
        "Folder on a file system that all workers see at the same path: memory notes, skills and checkpoints of "
        "conversations are kept there, and files of chats. Empty: each home has its own.",
    ] = ""
    capacity: Annotated[
        int,
        whole(1, 100_000),
        "Turns that run in one worker at the same time; further ones wait for any worker. Only with a PostgreSQL "
        "`store`.",
    ] = 500
    per_person: Annotated[
        int,
        whole(0, 100_000),
        "Turns of one person that run in one worker at the same time; the others wait. 0: no limit. Only with a "
        "PostgreSQL `store`.",
    ] = 8
