"""Base classes of providers that plugins subclass: speech, transcription, search, browsers, images, videos,
context engines. How they are used is in `compat.hermes.providers`."""

import base64
import binascii
import os
import time
from abc import ABC, abstractmethod
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from alipes.compat.hermes.modules.current_app import NotAvailable, bridge
from alipes.compat.hermes.modules.url_safety import fetch_public
from alipes.compat.hermes.platform.values import cache_folder

DEFAULT_OUTPUT_FORMAT = "mp3"
VALID_OUTPUT_FORMATS = frozenset({"mp3", "wav", "ogg", "opus", "flac"})
VALID_ASPECT_RATIOS = ("landscape", "square", "portrait")
DEFAULT_ASPECT_RATIO = "landscape"
DEFAULT_VIDEO_RATIO = "16:9"
DEFAULT_RESOLUTION = "720p"
MAX_IMAGE_BYTES = 25 * 1024 * 1024
MAX_VIDEO_BYTES = 200 * 1024 * 1024


class NamedProvider(ABC):
    """What all providers have in common."""

    @property
    @abstractmethod
    def name(self) -> str:
        """A short identifier."""

    @property
    def display_name(self) -> str:
        return self.name.replace("_", " ").replace("-", " ").title()

    def is_available(self) -> bool:
        """True if it can work; must not use the network."""
        return True

    def get_setup_schema(self) -> dict[str, Any]:
        return {"name": self.display_name, "badge": "", "tag": "", "env_vars": []}

    def list_models(self) -> list[dict[str, Any]]:
        return []

    def default_model(self) -> str | None:
        models = self.list_models()
        return models[0].get("id") if models else None


class TTSProvider(NamedProvider):
    """Turns text into speech."""

    @abstractmethod
    def synthesize(self, text: str, output_path: str, **options: Any) -> str:
        """Write speech to `output_path` and return the path. Options: voice, model, speed, format."""

    def list_voices(self) -> list[dict[str, Any]]:
        return []

    def default_voice(self) -> str | None:
        voices = self.list_voices()
        return voices[0].get("id") if voices else None

    def stream(self, text: str, **options: Any) -> Iterator[bytes]:
        raise NotImplementedError(f"{self.name} does not stream")

    @property
    def voice_compatible(self) -> bool:
        """True if its files can be sent as voice notes."""
        return False


def resolve_output_format(value: str | None) -> str:
    """A known audio format, or the default."""
    name = (value or "").strip().lower().lstrip(".")
    return name if name in VALID_OUTPUT_FORMATS else DEFAULT_OUTPUT_FORMAT


class TranscriptionProvider(NamedProvider):
    """Turns speech into text."""

    @abstractmethod
    def transcribe(self, file_path: str, **options: Any) -> dict[str, Any]:
        """`{"success": True, "transcript": ...}` or `{"success": False, "error": ...}`."""


class WebSearchProvider(NamedProvider):
    """Searches the web, or reads pages, or both."""

    def supports_search(self) -> bool:
        return True

    def supports_extract(self) -> bool:
        return False

    def search(self, query: str, limit: int = 5) -> dict[str, Any]:
        """`{"success": True, "data": {"web": [{"title", "url", "description"}]}}`."""
        raise NotImplementedError(f"{self.name} does not search")

    def extract(self, urls: list[str], **options: Any) -> Any:
        """`{"success": True, "data": [{"url", "title", "content"}]}`, or that list."""
        raise NotImplementedError(f"{self.name} does not read pages")


def get_provider_env(name: str) -> str:
    """A variable from the environment or `.env`; empty if it is in neither."""
    return bridge().variable(name)


class BrowserProvider(NamedProvider):
    """Opens browsers of a service."""

    @abstractmethod
    def create_session(self, task_id: str) -> dict[str, object]:
        """`{"session_name", "bb_session_id", "cdp_url", "features"}`."""

    @abstractmethod
    def close_session(self, session_id: str) -> bool: ...

    @abstractmethod
    def emergency_cleanup(self, session_id: str) -> None:
        """Close a session at exit; must not raise."""

    def is_configured(self) -> bool:
        return self.is_available()

    def provider_name(self) -> str:
        return self.display_name


class ImageGenProvider(NamedProvider):
    """Generates and edits images."""

    def capabilities(self) -> dict[str, Any]:
        return {"modalities": ["text"], "max_reference_images": 0}

    @abstractmethod
    def generate(self, prompt: str, aspect_ratio: str = DEFAULT_ASPECT_RATIO, **options: Any) -> dict[str, Any]:
        """`image_success(...)` or `image_error(...)`; the image is a path or a URL."""


class VideoGenProvider(NamedProvider):
    """Generates videos."""

    def capabilities(self) -> dict[str, Any]:
        return {"modalities": ["text"]}

    @abstractmethod
    def generate(self, prompt: str, **options: Any) -> dict[str, Any]: ...


class OpenAICompatibleVideoGenProvider(VideoGenProvider):
    """Present for imports only."""

    def generate(self, prompt: str, **options: Any) -> dict[str, Any]:
        raise NotAvailable("OpenAICompatibleVideoGenProvider", "subclass VideoGenProvider")


def resolve_aspect_ratio(value: str | None) -> str:
    ratio = (value or "").strip().lower()
    return ratio if ratio in VALID_ASPECT_RATIOS else DEFAULT_ASPECT_RATIO


def normalize_reference_images(value: Any) -> list[str] | None:
    """A list of references; None if there is none."""
    listed = [value] if isinstance(value, str) else value if isinstance(value, list | tuple) else []
    return [str(each).strip() for each in listed if str(each).strip()] or None


def save_b64_image(b64_data: str, *, prefix: str = "image", extension: str = "png") -> Path:
    return _save("images", _decode(b64_data), prefix, extension)


def save_b64_video(b64_data: str, *, prefix: str = "video", extension: str = "mp4") -> Path:
    return _save("video", _decode(b64_data), prefix, extension)


def save_bytes_video(raw: bytes, *, prefix: str = "video", extension: str = "mp4") -> Path:
    return _save("video", raw, prefix, extension)


def save_url_image(url: str, *, prefix: str = "image", timeout: float = 60.0, max_bytes: int = MAX_IMAGE_BYTES) -> Path:
    """Download an image from a public address; call it in a worker thread. Raises ValueError."""
    return _save_url("images", url, prefix, "png", max_bytes)


def save_url_video(
    url: str, *, prefix: str = "video", timeout: float = 180.0, max_bytes: int = MAX_VIDEO_BYTES
) -> Path:
    return _save_url("video", url, prefix, "mp4", max_bytes)


def _save_url(folder: str, url: str, prefix: str, extension: str, largest: int) -> Path:
    current = bridge()
    found = current.wait(current.any_context(), fetch_public(url, largest))
    family, _, kind = found.kind.partition("/")
    known = family in ("image", "video") and kind.isalnum()
    return _save(folder, found.data, prefix, kind.replace("jpeg", "jpg") if known else extension)


def _decode(b64_data: str) -> bytes:
    try:
        return base64.b64decode(b64_data.rpartition(",")[2], validate=False)
    except (binascii.Error, ValueError) as error:
        raise ValueError(f"not base64: {error}") from error


def _save(folder: str, data: bytes, prefix: str, extension: str) -> Path:
    name = f"{prefix}_{time.strftime('%Y%m%d_%H%M%S')}_{os.urandom(4).hex()}.{extension.lstrip('.')}"
    path = cache_folder(folder) / os.path.basename(name)
    with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as opened:
        opened.write(data)
    return path


def image_success(*, image: str, extra: dict[str, Any] | None = None, **facts: Any) -> dict[str, Any]:
    return {"success": True, "image": image, "modality": "text", **facts, **(extra or {})}


def video_success(*, video: str, extra: dict[str, Any] | None = None, **facts: Any) -> dict[str, Any]:
    return {"success": True, "video": video, "modality": "text", **facts, **(extra or {})}


def image_error(*, error: str, error_type: str = "provider_error", **facts: Any) -> dict[str, Any]:
    return {"success": False, "image": None, "error": error, "error_type": error_type, **facts}


def video_error(*, error: str, error_type: str = "provider_error", **facts: Any) -> dict[str, Any]:
    return {"success": False, "video": None, "error": error, "error_type": error_type, **facts}


class ContextEngine(ABC):
    """Shortens conversations that become too long."""

    last_prompt_tokens = last_completion_tokens = last_total_tokens = 0
    threshold_tokens = context_length = compression_count = 0
    threshold_percent = 0.75
    protect_first_n = 3
    protect_last_n = 6

    @property
    @abstractmethod
    def name(self) -> str: ...

    @abstractmethod
    def update_from_response(self, usage: dict[str, Any]) -> None: ...

    @abstractmethod
    def should_compress(self, prompt_tokens: int | None = None) -> bool: ...

    @abstractmethod
    def compress(self, messages: list[dict[str, Any]], current_tokens: int | None = None, **options: Any) -> Any:
        """The shortened messages."""

    def should_compress_preflight(self, messages: list[dict[str, Any]]) -> bool:
        return False

    def has_content_to_compress(self, messages: list[dict[str, Any]]) -> bool:
        return True

    def get_tool_schemas(self) -> list[dict[str, Any]]:
        return []

    def handle_tool_call(self, name: str, args: dict[str, Any], **_more: Any) -> str:
        raise NotImplementedError(f"{self.name} has no tool {name}")

    def get_status(self) -> dict[str, Any]:
        return {"engine": self.name, "compression_count": self.compression_count}

    def on_session_start(self, session_id: str, **_more: Any) -> None:
        return

    def on_session_end(self, session_id: str, messages: list[dict[str, Any]]) -> None:
        return

    def on_session_reset(self) -> None:
        return

    def update_model(self, model: str, context_length: int, **_more: Any) -> None:
        self.context_length = context_length
        self.threshold_tokens = int(context_length * self.threshold_percent)
