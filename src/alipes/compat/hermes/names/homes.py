"""`hermes_constants` and `hermes_cli.profiles`: where things lie, and for whom. It makes no folder."""

from pathlib import Path

from alipes.compat.hermes.names.bound import bridge


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
