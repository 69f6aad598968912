"""`tools.lazy_deps` without installing: reports which packages of a feature are missing."""

import importlib.util
import logging
from collections.abc import Callable
from subprocess import CompletedProcess
from typing import Any

log = logging.getLogger(__name__)
_FEATURES: dict[str, dict[str, str]] = {
    "platform.telegram": {"telegram": "python-telegram-bot"},
    "platform.discord": {"discord": "discord.py"},
    "platform.slack": {"slack_bolt": "slack-bolt", "slack_sdk": "slack-sdk"},
    "platform.matrix": {"mautrix": "mautrix"},
    "platform.dingtalk": {"dingtalk_stream": "dingtalk-stream"},
    "platform.feishu": {"lark_oapi": "lark-oapi"},
    "platform.teams": {"microsoft_teams": "microsoft-teams-apps"},
}
"""By feature: the modules it needs and the packages that have them."""


class FeatureUnavailable(RuntimeError):
    """Packages of a feature are missing."""

    def __init__(self, feature: str, missing: tuple[str, ...] = (), reason: str = "") -> None:
        self.feature, self.missing = feature, missing
        self.reason = reason or f"install {' '.join(missing) or 'its packages'} yourself: nothing is installed here"
        super().__init__(f"{feature} is not available: {self.reason}")


def feature_missing(feature: str) -> tuple[str, ...]:
    """The packages to install; unknown features miss nothing."""
    return tuple(package for module, package in _FEATURES.get(feature, {}).items() if not _is_importable(module))


def is_available(feature: str) -> bool:
    return not feature_missing(feature)


def feature_install_command(feature: str) -> str | None:
    missing = feature_missing(feature)
    return f"pip install {' '.join(missing)}" if missing else None


def ensure(feature: str, *, prompt: bool = True) -> None:
    """Raise FeatureUnavailable if a package is missing. Plugins may not install anything."""
    if missing := feature_missing(feature):
        raise FeatureUnavailable(feature, missing)


def ensure_and_bind(
    feature: str, importer: Callable[[], dict[str, Any]], target_globals: dict[str, Any], *, prompt: bool = False
) -> bool:
    """Import the feature's names into a plugin's module; False if a package is missing."""
    try:
        found = importer()
    except ImportError as error:
        log.warning("%s is not available: %s", feature, error)
        return False
    target_globals.update(found or {})
    return True


def pip_install(args: list[str], **_more: Any) -> "CompletedProcess[str]":
    """Always fails, with the command for the person."""
    command = ["pip", "install", *args]
    packages = " ".join(each for each in args if not each.startswith("-"))
    return CompletedProcess(command, 1, "", f"plugins may not install packages; run: pip install {packages}")


def _is_importable(module: str) -> bool:
    try:
        return importlib.util.find_spec(module) is not None
    except (ImportError, ValueError):
        return False
