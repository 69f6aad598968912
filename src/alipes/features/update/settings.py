"""Settings of updates."""

from typing import Annotated, Literal

from msgspec import Struct


class UpdateConfig(Struct, frozen=True):
    source: Annotated[
        str,
        "Where `alipes update` gets other versions: `index` (the package index that pip uses), a folder with wheels "
        "and their SHA256SUMS, or a checkout or Git address. Empty: where this alipes was installed from.",
    ] = ""
    channel: Annotated[
        Literal["stable", "next"],
        "`stable`: releases; `next`: also versions before a release, and the newest commit of a Git address.",
    ] = "stable"
    check: Annotated[
        bool,
        "Whether the terminal looks for a newer version once a day. Nothing is sent but the request for the list of "
        "versions, and nothing is installed.",
    ] = False
