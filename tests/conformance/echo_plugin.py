"""A platform plugin in the style of Hermes: exchanges lines of JSON with the server in `plugin.py`.

Its text is copied into a home; nothing here imports it.
"""

import asyncio
import base64
import json

from gateway.config import Platform
from gateway.platforms.base import (
    BasePlatformAdapter,
    MessageEvent,
    MessageType,
    SendResult,
    cache_document_from_bytes,
    cache_image_from_bytes,
)
from tools.approval import resolve_gateway_approval

CHOICES = {"Yes": "once", "No": "deny"}
CALL = "@echo "


class EchoPlatform(BasePlatformAdapter):
    def __init__(self, config):
        super().__init__(config, Platform("echo"))
        self.waiting, self.number, self.tasks = {}, 0, []

    async def connect(self):
        self.reader, self.writer = await asyncio.open_connection(
            "127.0.0.1", int(self.config.extra["port"]), limit=1 << 24
        )
        self.inbox = asyncio.Queue()
        self.tasks = [asyncio.create_task(self.read()), asyncio.create_task(self.take())]
        self._mark_connected()
        return True

    async def disconnect(self):
        for task in self.tasks:
            task.cancel()
        self.writer.close()
        self._mark_disconnected()

    async def read(self):
        while line := await self.reader.readline():
            seen = json.loads(line)
            if "done" in seen:
                self.waiting.pop(seen["done"]).set_result(seen["result"])
            else:
                self.inbox.put_nowait(seen)
        self._set_fatal_error("lost", "the echo hung up", retryable=True)

    async def take(self):
        """Handle lines in order and confirm each, so that it is not sent again."""
        while True:
            seen = await self.inbox.get()
            if "press" in seen:
                if seen["user"] in self.config.extra["people"]:  # adapters decide themselves who may press a button
                    resolve_gateway_approval(seen["session_key"], CHOICES[seen["press"]], by=seen["user"])
            elif not seen["group"] or seen["text"].startswith(CALL):
                await self.handle_message(self.heard(seen))
            self.write({"took": seen["id"]})

    def heard(self, seen):
        kind = "group" if seen["group"] else "dm"
        source = self.build_source(
            seen["chat"], None, kind, seen["user"], seen["name"], thread_id=seen["thread"] or None
        )
        event = MessageEvent(seen["text"].removeprefix(CALL), source=source, message_id=seen["id"])
        if file := seen["file"]:
            data = base64.b64decode(file["data"])
            picture = file["mime"].startswith("image/")
            event.message_type = MessageType.PHOTO if picture else MessageType.DOCUMENT
            path = cache_image_from_bytes(data, ".png") if picture else cache_document_from_bytes(data, file["name"])
            event.media_urls, event.media_types = [path], [file["mime"]]
        return event

    def write(self, seen):
        self.writer.write(json.dumps(seen).encode() + b"\n")

    async def ask(self, verb, chat_id, metadata=None, **more):
        self.number += 1
        done = self.waiting[self.number] = asyncio.get_running_loop().create_future()
        thread = (metadata or {}).get("thread_id") or ""
        self.write({"call": self.number, "verb": verb, "chat": chat_id, "thread": thread, **more})
        return SendResult(**await done)

    async def send(self, chat_id, content, reply_to=None, metadata=None):
        return await self.ask("send", chat_id, metadata, text=content, reply_to=reply_to or "")

    async def edit_message(self, chat_id, message_id, content, metadata=None):
        return await self.ask("edit", chat_id, metadata, message=message_id, text=content)

    async def delete_message(self, chat_id, message_id):
        return (await self.ask("delete", chat_id, message=message_id)).success

    async def send_document(self, chat_id, file_path, caption=None, file_name=None, metadata=None):
        with open(file_path, "rb") as file:
            data = base64.b64encode(file.read()).decode()
        return await self.ask("send", chat_id, metadata, text=caption or "", file={"name": file_name, "data": data})

    async def send_exec_approval(self, chat_id, command, session_key, description="", metadata=None):
        return await self.ask("send", chat_id, metadata, text=f"{description}: {command}", session_key=session_key)

    async def get_chat_info(self, chat_id):
        return {"name": chat_id, "type": "dm"}


def register(ctx):
    ctx.register_platform("echo", "Echo", EchoPlatform, lambda: True)
