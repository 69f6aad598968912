"""Settings of checkpoints."""

from typing import Annotated

from msgspec import Struct

from alipes.config.value_types import whole


class CheckpointsConfig(Struct, frozen=True):
    enabled: Annotated[
        bool,
        "Whether the project is saved before the first change of each turn, so that `/rollback` can restore it. Needs "
        "git.",
    ] = True
    max_mb: Annotated[
        int,
        whole(1, 1_000_000),
        "Disk space for the checkpoints of all folders, in MB; the oldest are removed. A folder with more to store has "
        "no checkpoints.",
    ] = 1000
    max_file_mb: Annotated[int, whole(1, 10_000), "Largest file that is part of a checkpoint, in MB."] = 10
    keep: Annotated[int, whole(1, 10_000), "Checkpoints that are kept for each folder."] = 50
