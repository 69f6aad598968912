"""One setting, as the table of settings tells it."""

from msgspec import Struct

from alipes.config.kinds import Kind
from alipes.kernel.messages import Json


class Key(Struct, frozen=True):
    path: str
    """Names with dots between them; `*` stands for a name the operator chooses."""
    kind: Kind
    default: Json
    doc: str
    named: str = ""
    """Its variable, where that is not called like the key."""

    @property
    def variable(self) -> str:
        """The variable that goes over the file; empty where there is none."""
        if self.named or "*" in self.path or self.kind.parse is None:
            return self.named
        return "ALIPES_" + self.path.upper().replace(".", "_")
