"""What `plugins doctor` must report: it changes the original's internals, and imports what is not there."""

import gateway.run
import tools.registry
from run_agent import AIAgent


def patched(self, *args):
    return None


AIAgent.run_conversation = patched
gateway.run.GatewayRunner._handle_message = patched
setattr(tools.registry.registry, "dispatch", patched)  # noqa: B010


def register(ctx):
    ctx.register_hook("on_session_start", lambda **kwargs: None)
