"""`tools.transcription_tools`: what was said in a recording. The house itself does not hear."""

from typing import Any

MISSING = (
    "speech cannot be turned into text: alipes has no transcription of its own yet, and no plugin that "
    "provides one is open"
)


def transcribe_audio(file_path: str, model: str | None = None, **_more: Any) -> dict[str, Any]:
    """`{"success": ..., "transcript": ..., "text": ...}`; where it fails, `error` says why."""
    return {"success": False, "transcript": "", "text": "", "error": MISSING}
