"""A person with an encrypting client: unmodified matrix-nio with its keys in memory."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import nio
from nio.crypto.attachments import decrypt_attachment, encrypt_attachment
from nio.store import SqliteMemoryStore

from tests.world.matrix_clients import Chat, Person

LOOK = 300
ENCRYPTED = {"initial_state": [{"type": "m.room.encryption", "content": {"algorithm": "m.megolm.v1.aes-sha2"}}]}


class EncryptedClient:
    """Reads and writes encrypted rooms for a logged-in person."""

    def __init__(self, person: Person, client: nio.AsyncClient) -> None:
        self.person, self.client, self.id = person, client, person.id
        self.chats: dict[str, Chat] = {}
        self.unread = 0
        """Messages that could not be decrypted."""
        self.sealed: set[str] = set()
        """Messages that were encrypted."""

    async def room(self, *others: Any, **more: Any) -> str:
        """Create an encrypted room."""
        made = await self.person.room(*others, **(ENCRYPTED | more))
        await self.until(lambda: made in self.client.rooms)
        return made

    async def joined(self, room: str, who: str) -> None:
        """Wait until they joined, so that messages are encrypted for them too."""
        await self.until(lambda: who in self.client.rooms[room].users)
        while not any(self.client.device_store.active_user_devices(who)):
            self.client.olm.users_for_key_query.add(who)
            await self.client.keys_query()
            await asyncio.sleep(0.02)

    async def send(self, room: str, content: dict[str, Any]) -> str:
        sent = await self.client.room_send(room, "m.room.message", content, ignore_unverified_devices=True)
        assert isinstance(sent, nio.RoomSendResponse), sent
        return str(sent.event_id)

    async def say(self, room: str, text: str, **more: Any) -> str:
        return await self.send(room, {"msgtype": "m.text", "body": text, **more})

    def keep_to_herself(self, room: str) -> dict[str, str]:
        """Start a new session key for the room without sharing it; returns the key for `share`."""
        self.client.olm.create_outbound_group_session(room)
        session = self.client.olm.outbound_group_sessions[room]
        session.shared = True
        key = {"algorithm": "m.megolm.v1.aes-sha2", "room_id": room}
        return {**key, "session_id": session.id, "session_key": session.session_key}

    async def share(self, key: dict[str, str], who: str) -> None:
        """Share the key with all devices of that person."""
        if missing := self.client.get_missing_sessions(key["room_id"]):
            await self.client.keys_claim(missing)
        for device in self.client.device_store.active_user_devices(who):
            session = self.client.olm.session_store.get(device.curve25519)
            sealed = self.client.olm._olm_encrypt(session, device, "m.room_key", key)
            message = nio.ToDeviceMessage("m.room.encrypted", who, device.id, sealed)
            await self.client.to_device(message)

    async def attach(self, room: str, name: str, mime: str, data: bytes) -> str:
        hidden, keys = encrypt_attachment(data)
        url = await self.person.upload(hidden, "application/octet-stream")
        kind = "m.image" if mime.startswith("image/") else "m.file"
        info = {"mimetype": mime, "size": len(data)}
        file = {**keys, "url": url}
        return await self.send(room, {"msgtype": kind, "body": name, "file": file, "info": info})

    async def fetch(self, file: dict[str, Any]) -> bytes:
        data = await self.person.download(file["url"])
        plain = decrypt_attachment(data, file["key"]["k"], file["hashes"]["sha256"], file["iv"])
        return bytes(plain)

    async def change(self, room: str, message: str, text: str) -> str:
        new = {"msgtype": "m.text", "body": text}
        related = {"rel_type": "m.replace", "event_id": message}
        return await self.say(room, f"* {text}", **{"m.new_content": new, "m.relates_to": related})

    async def look(self) -> None:
        response = await self.client.sync(LOOK)
        assert isinstance(response, nio.SyncResponse), response
        for room, news in response.rooms.join.items():
            for event in news.timeline.events:
                self.unread += isinstance(event, nio.MegolmEvent)
                if getattr(event, "decrypted", False):
                    self.sealed.add(event.event_id)
                if not isinstance(event, nio.MegolmEvent) and "state_key" not in event.source:
                    self.chat(room).hear(event.source)
        await self.client.send_to_device_messages()
        if self.client.should_upload_keys:
            await self.client.keys_upload()
        if self.client.should_query_keys:
            await self.client.keys_query()

    async def until(self, fact: Callable[[], Any]) -> None:
        while not fact():
            await self.look()

    def chat(self, room: str) -> Chat:
        return self.chats.setdefault(room, Chat())


@asynccontextmanager
async def open_encrypted_client(person: Person, url: str) -> AsyncIterator[EncryptedClient]:
    config = nio.AsyncClientConfig(store=SqliteMemoryStore)
    client = nio.AsyncClient(url, person.id, config=config)
    client.restore_login(person.id, person.device, person.token)
    try:
        made = EncryptedClient(person, client)
        await made.look()
        yield made
    finally:
        client.store.database.close()
        await client.close()
