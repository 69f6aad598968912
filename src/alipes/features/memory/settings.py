"""Settings of the memory: notes that are kept from one conversation to the next."""

from typing import Annotated

from msgspec import Struct

from alipes.config.value_types import seconds, whole


class MemoryConfig(Struct, frozen=True):
    enabled: Annotated[
        bool, "Whether the model sees the notes of earlier conversations and can change them. `/memory` shows them."
    ] = True
    ask: Annotated[
        bool,
        "Whether you are asked before the model changes a note. After it has read untrusted text you are asked in any "
        "case.",
    ] = False
    notify: Annotated[bool, "Whether a chat gets a line about each note that the model changes."] = True
    limit: Annotated[
        int, whole(200, 100_000), "Longest MEMORY.md, in characters. All of it is part of every conversation."
    ] = 1600
    user_limit: Annotated[int, whole(200, 100_000), "Longest USER.md, in characters."] = 800
    provider: Annotated[
        str, "Memory plugin to use, if several are enabled. Empty: the first one that is available."
    ] = ""
    recall_wait: Annotated[
        float,
        seconds(0, 30),
        "Seconds that the start of a turn waits for a memory plugin. Later results are used in the next turn.",
    ] = 0.3
