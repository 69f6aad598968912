"""A messenger of the first days: its adapter knows none of the keywords that came later."""

from gateway.config import Platform
from gateway.platforms.base import BasePlatformAdapter, SendResult


class OldChat(BasePlatformAdapter):
    def __init__(self, config):
        super().__init__(config, Platform("oldchat"))
        self.sent, self.happened, self.spoken = [], [], []

    async def connect(self):
        self.happened.append("connect")
        self._mark_connected()
        return True

    async def disconnect(self):
        self.happened.append("disconnect")
        self._mark_disconnected()

    async def send(self, chat_id, content, reply_to=None, metadata=None):
        self.sent.append((chat_id, content))
        return SendResult(success=True, message_id=str(len(self.sent)))

    async def get_chat_info(self, chat_id):
        return {"name": f"chat {chat_id}", "type": "dm"}

    async def send_typing(self, chat_id):
        self.happened.append("typing")

    async def stop_typing(self, chat_id):
        self.happened.append("quiet")

    async def send_voice(self, chat_id, audio_path):
        self.spoken.append(("voice", chat_id, audio_path))
        return SendResult(success=True)

    async def play_tts(self, chat_id, audio_path):
        self.spoken.append(("tts", chat_id, audio_path))
        return SendResult(success=True)

    async def on_processing_start(self, event):
        self.happened.append(f"begin {event.text}")

    async def on_processing_complete(self, event, success):
        self.happened.append(f"end {success}")


def register(ctx):
    ctx.register_platform(
        name="oldchat",
        label="Old Chat",
        adapter_factory=OldChat,
        check_fn=lambda: True,
        validate_config=lambda config: isinstance(config.extra, dict),
        allowed_users_env="OLDCHAT_ALLOWED",
        allow_all_env="OLDCHAT_ALLOW_ALL",
        max_message_length=400,
        platform_hint="Short lines, please.",
    )
