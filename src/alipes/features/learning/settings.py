"""Settings of learning: proposals for notes and skills after a turn."""

from typing import Annotated, Literal

from msgspec import Struct

from alipes.config.value_types import whole


class LearningConfig(Struct, frozen=True):
    mode: Annotated[
        Literal["off", "propose", "auto"],
        "What happens after a long or corrected turn that was answered. `propose`: the model of "
        "`[auxiliary.learning]` may propose a note or a skill, which waits for you in `/skills pending` or "
        "`/memory pending`. `auto`: it is saved at once, unless untrusted text had been read. `off`: nothing.",
    ] = "propose"
    per_day: Annotated[int, whole(0, 1000), "Turns that are looked at per day. 0: none."] = 5
    steps: Annotated[int, whole(1, 1000), "Tool calls from which on a turn counts as long."] = 8
    nudge: Annotated[bool, "Whether a line says that a proposal waits, when none was waiting before."] = True
