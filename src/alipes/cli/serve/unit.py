"""`alipes serve install`: the unit by which systemd starts, watches and ends us. It starts nothing itself."""

import getpass
import os
import sys
from pathlib import Path

from alipes.config.paths import make_private
from alipes.config.settings import Settings
from alipes.kernel.errors import ConfigError

NAME = "alipes.service"
WATCHED = 30
"""Seconds without a sign of life after which systemd takes us for hung."""
SPARE = 15
"""Seconds beyond the drain for everything to close."""


def install(settings: Settings, *, system: bool, write: bool) -> int:
    text = unit(settings, system=system)
    if not write:
        print(text, end="")
        return 0
    file = place(system)
    try:
        if not system:
            make_private(file.parent)
        file.write_text(text)
    except OSError as error:
        fix = "run it as root, or leave out --system" if system else "make its folder writable"
        raise ConfigError(f"{file} cannot be written ({error.strerror}); {fix}") from error
    own = "" if system else " --user"
    print(f"Written to {file}. What is left to do:")
    print(f"  systemctl{own} daemon-reload && systemctl{own} enable --now alipes")
    if not system:
        print("  loginctl enable-linger    # so that it runs while you are logged out")
    return 0


def place(system: bool) -> Path:
    return Path("/etc/systemd/system" if system else Path.home() / ".config/systemd/user") / NAME


def unit(settings: Settings, *, system: bool) -> str:
    """Restarted when it fails, but not over wrong settings; told apart by the exit status."""
    own = [f"User={getpass.getuser()}"] if system else []
    lines = [
        "[Unit]",
        "Description=alipes, a personal agent in your chats",
        "Wants=network-online.target",
        "After=network-online.target",
        "StartLimitIntervalSec=300",
        "StartLimitBurst=5",
        "",
        "[Service]",
        "Type=notify",
        "NotifyAccess=main",
        *own,
        f"Environment={_quoted(f'ALIPES_HOME={settings.home}')}",
        f"WorkingDirectory={_escaped(settings.workdir or os.path.expanduser('~'))}",
        f"ExecStart={_quoted(sys.executable)} -m alipes serve",
        "ExecReload=/bin/kill -HUP $MAINPID",
        "Restart=on-failure",
        "RestartSec=2",
        "RestartPreventExitStatus=2",
        f"WatchdogSec={WATCHED}",
        f"TimeoutStopSec={settings.serve.drain + SPARE:.0f}",
        "KillMode=mixed",
        "UMask=0077",
        "",
        "[Install]",
        f"WantedBy={'multi-user' if system else 'default'}.target",
    ]
    return "\n".join(lines) + "\n"


def _quoted(text: str) -> str:
    return '"' + _escaped(text.replace("\\", "\\\\").replace('"', '\\"')) + '"'


def _escaped(text: str) -> str:
    return text.replace("%", "%%").replace("$", "$$")
