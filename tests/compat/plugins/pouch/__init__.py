"""A memory provider in the original's style. It writes down what it is reported, in order."""

import json

from agent.memory_provider import MemoryProvider

calls = []


class Pouch(MemoryProvider):
    @property
    def name(self):
        return "pouch"

    def is_available(self):
        return True

    def initialize(self, session_id, **kwargs):
        calls.append(("initialize", session_id, sorted(kwargs)))

    def system_prompt_block(self):
        return "You have a pouch."

    def prefetch(self, query, *, session_id=""):
        calls.append(("prefetch", query))
        return "Ada likes tea." if "tea" in query else ""

    def queue_prefetch(self, query, *, session_id=""):
        calls.append(("queue_prefetch", query))

    def sync_turn(self, user_content, assistant_content, *, session_id=""):
        calls.append(("sync_turn", user_content, assistant_content))

    def get_tool_schemas(self):
        return [{"name": "recall", "description": "Recall.", "parameters": {"type": "object", "properties": {}}}]

    def handle_tool_call(self, tool_name, args, **kwargs):
        return json.dumps({"recalled": tool_name})

    def on_session_end(self, messages):
        calls.append(("on_session_end", [message["content"] for message in messages if message["role"] == "user"]))

    def on_session_switch(self, new_session_id, *, parent_session_id="", reset=False, **kwargs):
        calls.append(("on_session_switch", new_session_id, parent_session_id, reset))

    def shutdown(self):
        calls.append(("shutdown",))


def register(ctx):
    ctx.register_memory_provider(Pouch())
