"""`alipes completion`: completion scripts for bash, zsh and fish, made from the help pages."""

import shlex
import sys
from collections.abc import Iterable, Iterator

from alipes.cli.commands.help_index import HelpPage, OptionHelp, list_pages
from alipes.console import help_text
from alipes.console.options import OptionParser

_FILES = ("FILE", "PATH", "HOME", "SOURCE")
_NAMES = {"MODEL": "models", "NAME": "sessions", "PROFILE": "profiles"}
"""Values that the program lists, by what an option takes."""
_CHOICES = {
    "FORMAT": ("md", "html", "json"),
    "MODE": ("ask", "edits", "plan", "all"),
    "STYLE": ("standard", "github"),
    "SCOPE": ("read", "run", "admin"),
    "API": ("openai-chat", "openai-responses", "anthropic", "gemini", "bedrock"),
}
_SESSION_ACTIONS = ("show", "export", "delete")
_FILE_COMMANDS = ("backup", "restore")
LISTED = 100


def run(argv: list[str]) -> int:
    parser = OptionParser("alipes completion", help_text.COMPLETION)
    _args, words = parser.parse_with_words(argv)
    match words:
        case ["bash"]:
            print(_bash(), end="")
        case ["zsh"]:
            print(_zsh(), end="")
        case ["fish"]:
            print(_fish(), end="")
        case ["models"]:
            _print_names(_list_models())
        case ["sessions"]:
            _print_names(_list_sessions())
        case ["profiles"]:
            _print_names(_list_profiles())
        case _:
            parser.error("name one shell: bash, zsh or fish")
    return 0


def _print_names(names: Iterable[str]) -> None:
    """Names for the scripts, one per line."""
    sys.stdout.write("".join(f"{name}\n" for name in names))


def _list_models() -> list[str]:
    from alipes.config.loader import load_settings  # noqa: PLC0415
    from alipes.providers.registry import is_usable, known_models  # noqa: PLC0415

    settings = load_settings()
    usable = (name for name in known_models(settings) if is_usable(settings, name))
    return [name for name in usable if not name.startswith("scripted/")]


def _list_sessions() -> list[str]:
    from alipes.config.loader import load_settings  # noqa: PLC0415
    from alipes.console.common import run_in_archive  # noqa: PLC0415

    sessions = run_in_archive(load_settings(), lambda archive: archive.sessions(LISTED))
    return [facts.id[:6] for facts in sessions]


def _list_profiles() -> list[str]:
    from alipes.config.paths import all_homes, find_home, profile_name  # noqa: PLC0415

    return [profile_name(home) for home in all_homes(find_home())]


def _options(pages: Iterable[HelpPage]) -> dict[str, list[str]]:
    """The options that take a value, as `command:option`, by what completes it."""
    found: dict[str, list[str]] = {}
    for page in pages:
        for option in page.options:
            if option.takes:
                found.setdefault(_kind(page.name, option), []).extend(f"{page.name}:{name}" for name in option.names)
    return found


def _kind(command: str, option: OptionHelp) -> str:
    """What completes the value: `models`, `sessions`, `files`, words, or nothing."""
    if command == "page" and option.takes == "SCOPE":
        return "read admin"
    if option.takes in _CHOICES:
        return " ".join(_CHOICES[option.takes])
    if option.takes in _FILES:
        return "files"
    if option.takes == "NAME" and command not in ("", "ask"):
        return ""
    return _NAMES.get(option.takes, "")


def _words(page: HelpPage) -> list[str]:
    return [*page.actions, *(name for option in page.options for name in option.names)]


_BASH = """\
# Completion of alipes for bash: source <(alipes completion bash)
_alipes() {
    local line=${COMP_LINE:0:COMP_POINT} command= action= words= i
    local cur=${line##*[[:space:]]}
    local -a given
    read -r -a given <<< "${line% *}"
    for ((i = 1; i < ${#given[@]}; i++)); do
        case $command:${given[i]} in
            @VALUED@) ((i++)) ;;
            *:-*) ;;
            *) if [[ -z $command ]]; then command=${given[i]}; else action=${given[i]}; break; fi ;;
        esac
    done
    case $command:${given[${#given[@]}-1]} in
@VALUES@
    esac
    if [[ -z $words ]]; then
        case $command in
            '') words=@TOP@ ;;
@COMMANDS@
        esac
        if [[ $command == sessions && " @SESSION_ACTIONS@ " == *" $action "* && -n $action ]]; then
            words="$(alipes completion sessions 2>/dev/null)"
        elif [[ " @FILE_COMMANDS@ " == *" $command "* && -n $command && $cur != -* ]]; then
            COMPREPLY=($(compgen -f -- "$cur")); return
        elif [[ $command == model && $cur != -* ]]; then
            words="$(alipes completion models 2>/dev/null)"
        fi
    fi
    COMPREPLY=($(compgen -W "$words" -- "$cur"))
    if [[ $cur == *:* && $COMP_WORDBREAKS == *:* ]]; then
        local head=${cur%"${cur##*:}"}
        COMPREPLY=("${COMPREPLY[@]#"$head"}")
    fi
}
complete -F _alipes alipes
"""


def _bash() -> str:
    top, *pages = list_pages()
    valued = _options((top, *pages))
    cases = [f"        {'|'.join(names)}) {_bash_value(kind)} ;;" for kind, names in valued.items()]
    commands = [f"            {page.name}) words={shlex.quote(' '.join(_words(page)))} ;;" for page in pages]
    first = " ".join([*(page.name for page in pages), *_words(top)])
    return _fill(
        _BASH,
        VALUED="|".join(name for names in valued.values() for name in names),
        VALUES="\n".join(cases),
        TOP=shlex.quote(first),
        COMMANDS="\n".join(commands),
    )


def _bash_value(kind: str) -> str:
    if kind == "files":
        return 'COMPREPLY=($(compgen -f -- "$cur")); return'
    if kind in _NAMES.values():
        return f'words="$(alipes completion {kind} 2>/dev/null)"'
    return f"words={shlex.quote(kind)}" if kind else "return"


_ZSH = """\
#compdef alipes
# Completion of alipes for zsh: save it as _alipes in a folder of $fpath, or source it.
_alipes() {
    local command= action= i
    local -a actions options names
    for ((i = 2; i < CURRENT; i++)); do
        case $command:$words[i] in
            (@VALUED@) ((i++)) ;;
            (*:-*) ;;
            (*) if [[ -z $command ]]; then command=$words[i]; else action=$words[i]; break; fi ;;
        esac
    done
    case $command:$words[CURRENT-1] in
@VALUES@
    esac
    case $command in
        ('')
            actions=(@TOP_ACTIONS@)
            options=(@TOP_OPTIONS@) ;;
@COMMANDS@
    esac
    if [[ $PREFIX == -* ]]; then
        _describe -o option options
    elif [[ $command == sessions && " @SESSION_ACTIONS@ " == *" $action "* && -n $action ]]; then
        names=(${(f)"$(alipes completion sessions 2>/dev/null)"}); compadd -a names
    elif [[ $command == model ]]; then
        names=(${(f)"$(alipes completion models 2>/dev/null)"}); compadd -a names
    elif [[ " @FILE_COMMANDS@ " == *" $command "* && -n $command ]]; then
        _files
    else
        _describe command actions
    fi
}
if [[ $funcstack[1] == _alipes ]]; then _alipes "$@"; else compdef _alipes alipes; fi
"""


def _zsh() -> str:
    top, *pages = list_pages()
    valued = _options((top, *pages))
    cases = [f"        ({'|'.join(names)}) {_zsh_value(kind)} ;;" for kind, names in valued.items()]
    commands = [
        f"        ({page.name})\n            actions=({_zsh_items((name, '') for name in page.actions)})\n"
        f"            options=({_zsh_items(_described(page))}) ;;"
        for page in pages
    ]
    return _fill(
        _ZSH,
        VALUED="|".join(name for names in valued.values() for name in names),
        VALUES="\n".join(cases),
        TOP_ACTIONS=_zsh_items((page.name, page.about) for page in pages),
        TOP_OPTIONS=_zsh_items(_described(top)),
        COMMANDS="\n".join(commands),
    )


def _described(page: HelpPage) -> Iterator[tuple[str, str]]:
    return ((name, option.about) for option in page.options for name in option.names)


def _zsh_items(items: Iterable[tuple[str, str]]) -> str:
    texts = (f"{name}:{about.replace(':', chr(92) + ':')}" if about else name for name, about in items)
    return " ".join(shlex.quote(text) for text in texts)


def _zsh_value(kind: str) -> str:
    if kind == "files":
        return "_files; return"
    if kind in _NAMES.values():
        return f'names=(${{(f)"$(alipes completion {kind} 2>/dev/null)"}}); compadd -a names; return'
    return f"compadd -- {kind}; return" if kind else "return"


def _fish() -> str:
    top, *pages = list_pages()
    lines = ["# Completion of alipes for fish: alipes completion fish > ~/.config/fish/completions/alipes.fish"]
    lines.append("complete -c alipes -f")
    first = "not __fish_seen_subcommand_from " + " ".join(page.name for page in pages)
    for page in pages:
        lines.append(f"complete -c alipes -n {_fish_quote(first)} -a {page.name} -d {_fish_quote(page.about)}")
    for page in (top, *pages):
        here = f"__fish_seen_subcommand_from {page.name}" if page.name else first
        lines += [f"complete -c alipes -n {_fish_quote(here)} -a {action}" for action in page.actions]
        lines += [_fish_option(page, option, here) for option in page.options]
    sessions = f"__fish_seen_subcommand_from sessions; and __fish_seen_subcommand_from {' '.join(_SESSION_ACTIONS)}"
    lines.append(f"complete -c alipes -n {_fish_quote(sessions)} -a '(alipes completion sessions)'")
    lines.append("complete -c alipes -n '__fish_seen_subcommand_from model' -a '(alipes completion models)'")
    lines.append(f"complete -c alipes -n '__fish_seen_subcommand_from {' '.join(_FILE_COMMANDS)}' -F")
    return "\n".join(lines) + "\n"


def _fish_option(page: HelpPage, option: OptionHelp, here: str) -> str:
    parts = ["complete -c alipes -n", _fish_quote(here)]
    if option.short:
        parts.append(f"-s {option.short[1:]}")
    parts.append(f"-l {option.name[2:]}")
    kind = _kind(page.name, option) if option.takes else ""
    if option.takes and not option.value.startswith("["):
        parts.append("-r")
    if kind == "files":
        parts.append("-F")
    elif kind:
        parts.append(f"-a {_fish_quote(f'(alipes completion {kind})' if kind in _NAMES.values() else kind)}")
    return " ".join([*parts, "-d", _fish_quote(option.about)])


def _fish_quote(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace("'", "\\'")
    return f"'{escaped}'"


def _fill(script: str, **values: str) -> str:
    values |= {"SESSION_ACTIONS": " ".join(_SESSION_ACTIONS), "FILE_COMMANDS": " ".join(_FILE_COMMANDS)}
    for name, value in values.items():
        script = script.replace(f"@{name}@", value)
    return script
