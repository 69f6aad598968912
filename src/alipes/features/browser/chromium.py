"""Finds an installed Chromium, and decides how it is started."""

import os
import shutil
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path

from alipes.config.extras import explain_missing
from alipes.features.browser.settings import BrowserConfig
from alipes.features.browser.specs import OFF
from alipes.runtime.sandbox.policy import make_private_directory

NAMES = ("chromium", "chromium-browser", "google-chrome-stable", "google-chrome", "chrome", "microsoft-edge")
_MAC = ("Google Chrome", "Chromium", "Microsoft Edge")
INSTALL_CHROMIUM = "install Chromium or Chrome, or set browser.executable"
NO_PROXY_URL = "http://127.0.0.1:9"
"""Where connections of Chromium itself go, which belong to no page: nothing listens there."""
MAX_PATH_BYTES = 60
_KEPT_VARIABLES = ("PATH", "LANG", "LC_ALL", "LC_CTYPE", "TZ", "LD_LIBRARY_PATH", "FONTCONFIG_FILE", "FONTCONFIG_PATH")
_FLAGS = (
    "--disable-gpu",
    "--disable-quic",  # it would not use the proxy
    "--disable-domain-reliability",
    "--disable-client-side-phishing-detection",
    "--no-pings",
    "--dns-prefetch-disable",
    "--host-resolver-rules=MAP * ~NOTFOUND , EXCLUDE 127.0.0.1",  # names are resolved by our proxy only
    "--force-webrtc-ip-handling-policy=disable_non_proxied_udp",
    "--webrtc-ip-handling-policy=disable_non_proxied_udp",
)
HIDE_DIRECT_CONNECTIONS = """
for (const name of ["RTCPeerConnection", "webkitRTCPeerConnection", "RTCDataChannel", "WebTransport"])
  try { delete globalThis[name] } catch {}
"""
"""Runs in every page before its own scripts: what could connect without the proxy is not there."""


def find_chromium(config: BrowserConfig, environ: Mapping[str, str]) -> str:
    """Path of the program; empty if there is none."""
    if config.executable:
        return config.executable if os.access(config.executable, os.X_OK) else ""
    for name in NAMES:
        if found := shutil.which(name, path=environ.get("PATH", os.defpath)):
            return found
    if sys.platform == "darwin":
        apps = (Path(f"/Applications/{name}.app/Contents/MacOS/{name}") for name in _MAC)
        return next((str(app) for app in apps if app.exists()), "")
    return ""


def find_obstacle(config: BrowserConfig, environ: Mapping[str, str]) -> str:
    """Why the browser cannot be used and what to do, as a sentence; empty if it can."""
    if not config.enabled:
        return OFF
    if find_spec("playwright") is None:
        return explain_missing("browser")
    if not find_chromium(config, environ):
        if config.executable:
            return f"{config.executable} cannot be run: correct browser.executable."
        return f"No Chromium was found: {INSTALL_CHROMIUM}."
    return ""


def uses_sandbox(config: BrowserConfig) -> bool:
    """Whether Chromium isolates pages from this machine; it refuses to do that for root."""
    return config.sandbox == "on" or (config.sandbox == "auto" and os.geteuid() != 0)


def chromium_arguments() -> list[str]:
    """Flags besides those of Playwright, which switch off updates and other background work."""
    return [*_FLAGS]


@contextmanager
def shorten_path(folder: Path) -> Iterator[Path]:
    """The folder under a short path: Chromium makes a socket in it, whose path may have 107 characters."""
    if len(os.fsencode(folder)) <= MAX_PATH_BYTES:
        yield folder
        return
    links = Path(make_private_directory("browser"))
    for left in links.iterdir():
        if not left.exists():  # of a process that was killed
            left.unlink(missing_ok=True)
    link = links / os.urandom(6).hex()
    link.symlink_to(folder, target_is_directory=True)
    try:
        yield link
    finally:
        link.unlink(missing_ok=True)


def chromium_environment(environ: Mapping[str, str], folder: Path) -> dict[str, str]:
    """Variables for Playwright and Chromium: none of the user's own; their files are in `folder`."""
    kept = {name: environ[name] for name in _KEPT_VARIABLES if name in environ}
    return {"PATH": os.defpath, **kept, "HOME": str(folder), "TMPDIR": str(folder)}
