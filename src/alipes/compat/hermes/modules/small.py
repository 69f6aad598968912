"""`agent.auxiliary_client`: a question to a model beside the conversation, in the form plugins know."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NoReturn

from alipes.compat.hermes.modules.current_app import NotHere, bridge
from alipes.compat.hermes.openai_format import Response, messages_from, response_of
from alipes.kernel.ports import Request

MISSING = (
    "speech cannot be turned into text: alipes has no transcription of its own yet, and no plugin that "
    "provides one is open"
)


def transcribe_audio(file_path: str, model: str | None = None, **_more: Any) -> dict[str, Any]:
    """`{"success": ..., "transcript": ..., "text": ...}`; where it fails, `error` says why."""
    return {"success": False, "transcript": "", "text": "", "error": MISSING}


def get_hermes_home() -> Path:
    """Our home: `$ALIPES_HOME`, or where the app was opened."""
    return bridge().home


def display_hermes_home() -> str:
    """The same for a person, with `~` for their own folder."""
    home, own = str(get_hermes_home()), str(Path.home())
    return home.replace(own, "~", 1) if home.startswith(f"{own}/") else home


def get_hermes_dir(new_subpath: str, _old_name: str = "") -> Path:
    return get_hermes_home() / new_subpath


def get_config_path() -> Path:
    return bridge().settings.paths.config


def get_env_path() -> Path:
    return bridge().settings.paths.env


def get_active_profile_name() -> str:
    """There is one."""
    return bridge().profile_name


_REFUSED = ("tools", "base_url", "api_key", "stream")
"""Given with a value, these would be passed over; and another endpoint or no tools is no detail."""


def call_llm(task: str | None = None, **asked: Any) -> Response:
    """Ask, and wait: from a worker thread only. `.choices[0].message.content` is what was said.

    Taken are `messages`, `model`, `provider`, `max_tokens` and `timeout`. The model is by default the one
    that answers in the conversation; `task` and `temperature` are the caller's own business.
    """
    house = bridge()
    return house.wait(house.context(), async_call_llm(task, **asked), asked.get("timeout"))


async def async_call_llm(_task: str | None = None, **asked: Any) -> Response:
    """The same, for who is on the loop."""
    if refused := [name for name in _REFUSED if asked.get(name)]:
        raise NotHere(f"call_llm({refused[0]}=...)")
    messages: Sequence[Mapping[str, Any]] = asked.get("messages") or ()
    system = "\n\n".join(str(each.get("content") or "") for each in messages if each.get("role") == "system")
    told = messages_from([each for each in messages if each.get("role") != "system"])
    model, limit = _model(asked.get("provider"), asked.get("model")), int(asked.get("max_tokens") or 0)
    reply = await bridge().host.ask(told, system=system, model=model, max_tokens=limit)
    return response_of(reply, Request(model, system, told))


def _model(provider: str | None, model: str | None) -> str:
    if not provider or provider in ("auto", "main"):
        return model or ""
    return f"{provider}/{model}" if model else provider


_INSTEAD = "run it from your system's own cron with `alipes ask`"


def load_jobs() -> list[dict[str, Any]]:
    return []


def list_jobs(include_disabled: bool = False, **_more: Any) -> list[dict[str, Any]]:
    return []


def get_due_jobs() -> list[dict[str, Any]]:
    return []


def get_job(job_id: str) -> dict[str, Any] | None:
    return None


def remove_job(job_id: str) -> bool:
    """False: there is none of that name."""
    return False


def create_job(*_given: Any, **_more: Any) -> NoReturn:
    raise NotHere("cron.jobs.create_job (schedules)", _INSTEAD)


def update_job(job_id: str, *_given: Any, **_more: Any) -> dict[str, Any] | None:
    return None


def pause_job(job_id: str, *_given: Any, **_more: Any) -> dict[str, Any] | None:
    return None


def resume_job(job_id: str) -> dict[str, Any] | None:
    return None


def trigger_job(job_id: str) -> dict[str, Any] | None:
    return None


def save_jobs(jobs: list[dict[str, Any]]) -> None:
    """Nothing is kept, so that only nothing may be given."""
    if jobs:
        raise NotHere("cron.jobs.save_jobs (schedules)", _INSTEAD)
