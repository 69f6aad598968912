"""Settings of other agents."""

from typing import Annotated

from msgspec import Struct

from alipes.config.value_types import TEXTS, VARIABLES

NAME = r"[a-z][a-z0-9_-]{0,31}"


class AgentConfig(Struct, frozen=True):
    """`[agents.NAME]`: a program that speaks the Agent Client Protocol. A known NAME needs no field."""

    command: Annotated[str, "The program, which is started in the sandbox. Empty: that of the preset called NAME."] = ""
    args: Annotated[tuple[str, ...], TEXTS, "Arguments of the program. Empty with `command`: those of the preset."] = ()
    env: Annotated[
        dict[str, str],
        VARIABLES,
        "Variables of the program. `${NAME}` is replaced by a variable, so that secrets stay in .env. It gets none of "
        "your keys unless they are listed here.",
    ] = {}
    folder: Annotated[str, "Directory that it works in. Empty: the working directory of the conversation."] = ""
    mode: Annotated[str, "Mode of the program that its sessions begin with, by its id. Empty: the program's own."] = ""
