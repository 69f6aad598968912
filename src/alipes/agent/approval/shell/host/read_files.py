"""The files of a project that a command reads, and what they hold: a right to run it holds for that content only.

What is looked for are files that the words name, scripts, build files, and what these load. A command of which that
cannot be said reads files that are not known, so that no standing right can hold for it.
"""

import hashlib
import os
import re
import shutil
import stat
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from difflib import unified_diff
from itertools import pairwise

from msgspec import Struct

from alipes.agent.approval.paths import PathChecker
from alipes.agent.approval.shell.carriers import CARRIERS, RUNNERS, find_exec_commands, split_string
from alipes.agent.approval.shell.code import CodeText, find_code, language_of
from alipes.agent.approval.shell.host.embedded import loaded_files, runs_programs
from alipes.agent.approval.shell.host.recipes import PACKAGE_PROGRAMS, find_recipes, included_names
from alipes.agent.approval.shell.host.script_files import ScriptFiles
from alipes.agent.approval.shell.lexer import UNKNOWN, ShellArguments, ShellWord, Unparsable
from alipes.agent.approval.shell.nested import nested_commands
from alipes.agent.approval.shell.parser import ShellCommand, parse_commands
from alipes.agent.approval.shell.rules import SHELLS
from alipes.agent.approval.shell.subcommands import for_each
from alipes.agent.approval.shell.variables import LOADING_VARIABLES, TEXT_VARIABLES, TRUSTED_VARIABLES
from alipes.kernel.messages import ToolCall
from alipes.runtime.sandbox.policy import is_inside
from alipes.tools.common import Places

MAX_CODE_CHARS = 200_000
MAX_FILES = 60
MAX_FILE_BYTES = 8_000_000
"""A larger file is not hashed."""
MAX_DEPTH = 5
"""Files that load each other."""
MAX_SHOWN_LINES = 60
"""Lines of one file in a question; of a longer one its start and its end."""
MAX_SHOWN_CHARS = 6_000
"""Characters of all files in a question."""
_SYSTEM = r"/(?:usr|bin|sbin|lib|lib32|lib64|etc|opt|proc|sys|dev|nix|System|Library)(?:/|\Z)"
_PLAIN = for_each(
    "ls cat head tail less more wc stat file du df tree grep egrep fgrep rg find diff cmp sort uniq cut rm rmdir mkdir"
    " touch unlink chmod chown echo printf test [ cd pushd popd pwd realpath readlink basename dirname which true false"
    " md5sum sha256sum export declare local readonly set unset ps kill pkill",
    True,
)
"""Programs that run nothing of what they name, and hand it on only through a pipe or a redirection."""
_RUNS_PROJECT = for_each(
    "pytest py.test tox nox cargo go gradle gradlew mvn ant sbt bazel bazelisk ninja meson rake grunt gulp jest vitest"
    " mocha npx bunx pnpx tsx ts-node just task invoke fab vagrant terraform tofu pulumi pre-commit ansible-playbook"
    " bundle composer mix stack cabal swift dotnet flutter dart docker-compose podman-compose scons waf run-parts"
    " webpack vite rollup parcel eslint stylelint prettier next nuxt astro ng nx turbo lerna playwright cypress"
    " wrangler serverless celery gunicorn uvicorn hypercorn daphne flask django-admin alembic mypy pylint sphinx-build"
    " mkdocs jupyter ipython coverage direnv mise ansible packer skaffold tilt rails rspec rubocop jekyll pod fastlane"
    " phpunit vi vim nvim ex emacs gdb lldb R Rscript",
    True,
)
"""Programs that run code of the whole project."""
_LOADING_OPTIONS = {"perl": r"-[IMm]", "ruby": r"-[Ir]|--require", "php": r"-[cdz]", "lua": r"-l"}
"""Options by which an interpreter loads code besides the script."""
_LOADS = f"{TRUSTED_VARIABLES}|{LOADING_VARIABLES}|PYTHONPATH$"
_PACKAGE_FILES = ("package.json", "package-lock.json", "yarn.lock", "pnpm-lock.yaml", ".npmrc", ".yarnrc.yml")
MODULE = "Python may load it"
_ELSEWHERE = ("ssh", "mosh", "kubectl", "docker", "podman", "nerdctl")
"""Programs whose arguments are commands that run elsewhere."""
_FIND_RUNS = ("-exec", "-execdir", "-ok", "-okdir")
_AS_OTHERS = ("sudo", "doas", "su", "runuser")
_GIT_COMMANDS = ("-x", "--exec", "foreach", "run", "--tree-filter", "--index-filter", "--env-filter", "--upload-pack")
"""What comes before a command in the arguments of git."""
_PACKAGE_CODE = (".yarnrc", ".yarnrc.yml", ".pnp.cjs", ".pnpmfile.cjs", "pnpm-workspace.yaml", "bunfig.toml")
"""Files that make npm, yarn, pnpm and bun run code of the project besides the scripts."""
_PACKAGE_SETTINGS = r"(?m)^\s{0,9}(?:script-shell|shell|node-options|prefix|globalconfig|userconfig)\s{0,9}="
_MAKE_CODE = (
    r"(?m)\$[({](?:MAKE|eval|call|file|guile|wildcard)\b|^\s{0,9}(?:load|define|unexport|export)\b"
    r"|^\s{0,9}(?:export\s{1,9})?(?:SHELL|PATH|MAKEFLAGS|\.SHELLFLAGS|\.RECIPEPREFIX|VPATH)\s{0,9}[:+?]{0,2}="
    r"|^\t[@+-]{0,3}\$[({](?!CC[)}]|CXX[)}]|RM[)}]|AR[)}]|LD[)}])"
)
"""What a makefile runs that its recipes do not show: makefiles, functions, shells, programs named by a variable."""
_SCRIPT_PROGRAM = r"(?:^|&&|\|\||[;|])\s{0,9}(?:\w{1,40}=\S{0,200}\s{1,9}){0,9}([\w./@-]{1,200})"
_LIFECYCLE = ("prepublish", "prepublishOnly", "prepare", "prepack", "postpack", "publish", "postpublish")


class PinnedFile(Struct, frozen=True):
    """A file as it is now."""

    path: str
    digest: str
    text: str = ""
    """Empty if it is no text, or may not be shown."""
    note: str = ""
    """Why the text is not shown."""


class CommandFiles(Struct, frozen=True):
    """What a command reads."""

    files: tuple[PinnedFile, ...] = ()
    runs_files: bool = False
    """It runs some of them, not only names them."""
    unknown: str = ""
    """Why it cannot be said what the command reads or runs, as a clause; empty if it can."""

    @property
    def digest(self) -> str:
        """Equal if and only if all files and their content are; empty without files."""
        if not self.files:
            return ""
        lines = "\n".join(f"{file.path}\0{file.digest}" for file in self.files)
        return hashlib.sha256(lines.encode(errors="surrogatepass")).hexdigest()

    @property
    def texts(self) -> dict[str, str]:
        return {file.path: file.text for file in self.files}


def find_command_files(call: ToolCall, workdir: str, places: Places) -> CommandFiles:
    """What a call of a tool that runs commands reads of the project."""
    folder = call.args.get("workdir")
    start = str(places.resolve(folder, workdir)) if isinstance(folder, str) and folder else ""
    search = _FileSearch(PathChecker(places, workdir, start), places)
    match call.name, call.args:
        case "terminal", {"command": str(text)}:
            search.add_text(text)
        case "process", {"data": str(text)}:
            search.add_text(text)
        case "execute_code", {"code": str(text)}:
            search.add_code("python", text, "")
    return search.result()


def format_files(found: CommandFiles, workdir: str, before: Mapping[str, str]) -> str:
    """The files as a person is asked about them. `before`: texts that the person said yes to; what changed in these is
    shown."""
    shown: list[str] = []
    room = MAX_SHOWN_CHARS
    for file in found.files:
        name = os.path.relpath(file.path, workdir) if workdir and is_inside(file.path, workdir) else file.path
        text = _format_text(file, before.get(file.path), max(room, 200))
        room -= len(text)
        shown.append(f"{name}{text}")
    return "\n".join(shown)


def _format_text(file: PinnedFile, before: str | None, room: int) -> str:
    if file.note:
        return f" ({file.note})"
    if before == file.text:
        return " (as before)"
    if before is not None:
        lines = list(unified_diff(before.splitlines(), file.text.splitlines(), lineterm="", n=2))[2:]
        head = ", changed since your last yes:"
    else:
        lines, head = file.text.splitlines(), ":"
    if len(lines) > MAX_SHOWN_LINES:
        left = len(lines) - MAX_SHOWN_LINES
        lines = [*lines[: MAX_SHOWN_LINES - 20], f"[... {left:,} more lines ...]", *lines[-20:]]
    text = "\n".join(f"    {line}" for line in lines)
    if len(text) > room:
        text = f"{text[: room * 2 // 3]}\n    [... {len(text) - room:,} more characters ...]\n{text[-room // 3 :]}"
    return f"{head}\n{text}" if text else " (empty)"


class _FileSearch:
    """Collects the files that commands read."""

    def __init__(self, paths: PathChecker, places: Places) -> None:
        self._paths, self._places = paths, places
        self._scripts = ScriptFiles(paths)
        self._found: dict[str, PinnedFile] = {}
        self._searched: set[str] = set()
        self._runs = False
        self._unknown = ""
        self._depth = 0

    def result(self) -> CommandFiles:
        return CommandFiles(tuple(self._found[path] for path in sorted(self._found)), self._runs, self._unknown)

    def add_text(self, text: str) -> None:
        """What the commands of a shell text read."""
        if UNKNOWN in text:
            return self._give_up("it runs a command that is only known at run time")
        if self._depth >= MAX_DEPTH:
            return self._give_up("its scripts run each other")
        try:
            commands = parse_commands(text, self._paths.known_variables())
        except Unparsable:
            return self._give_up("it cannot be parsed")
        self._depth += 1
        for command in commands:
            self._add_command(command)
        self._depth -= 1
        return None

    def add_code(self, base: str, text: str, file: str, root: str = "") -> None:
        """What code of a language loads; `file` is where it is, empty if it was given in the call. `root`: the folder
        in which Python looks for modules first, if it is not that of the file."""
        if UNKNOWN in text or len(text) > MAX_CODE_CHARS:
            return self._give_up("it runs code that is built at run time, or too long to check")
        if self._depth >= MAX_DEPTH:
            return self._give_up("its files load each other")
        if runs_programs(text):
            return self._give_up("its code starts other programs")
        folder = os.path.dirname(file)
        if base in ("node", "bun", "deno") and self._has_packages(folder):
            return self._give_up("it may load any package of node_modules")
        self._depth += 1
        root = root or folder
        for path in loaded_files(base, text):
            for place in dict.fromkeys((folder, root)):
                self._add_code_file(ShellWord(os.path.join(place, path)), base, root)
        for path in list(CodeText(text).paths())[:500]:
            self._pin_word(ShellWord(os.path.join(folder, path)))
        if base == "python":
            self._pin_modules(root, file)
        self._depth -= 1
        return None

    def _has_packages(self, folder: str) -> bool:
        """True if code in a folder may load packages of the project."""
        return self._find_around("node_modules", folder)

    def _find_around(self, name: str, *folders: str) -> bool:
        """True if something of this name is in these or the current folders, or in a folder of the project around."""
        current = self._folders() or [self._paths.project]
        places = {os.path.join(each, folder) for each in current for folder in ("", *folders)}
        around = {os.path.realpath(os.path.join(place, *[".."] * up)) for place in places for up in range(12)}
        return any(os.path.lexists(f"{each}/{name}") for each in around if is_inside(each, self._paths.project))

    def _pin_modules(self, root: str, file: str) -> None:
        """Modules that Python loads instead of others of that name, and what it loads instead of a source file."""
        for place in [root] if root else self._folders():
            for name in _names_in(place):
                end = "/__init__.py" if os.path.isdir(os.path.join(place, name)) else ""
                if end or name.endswith((".py", ".pyc", ".so")):
                    self._pin(os.path.realpath(os.path.join(place, name) + end), note=MODULE)
        folder, _, name = file.rpartition("/")
        for each in _names_in(f"{folder}/__pycache__") if folder else ():
            if each.partition(".")[0] == name.removesuffix(".py"):
                self._pin(f"{folder}/__pycache__/{each}")

    def _give_up(self, why: str) -> None:
        self._unknown = self._unknown or why

    def _add_command(self, command: ShellCommand) -> None:
        words = [(name, value) for name, sign, value in (word.text.partition("=") for word in command.words) if sign]
        for name, value in [*((name, value.text) for name, value in command.assignments), *words]:
            if name == "PATH" or re.match(_LOADS, name):
                self._give_up(f"it sets {name}")
            elif re.match(TEXT_VARIABLES, name):
                self.add_text(value)
            self._pin_word(ShellWord(value))
        for redirect in command.redirects:
            if "<" in redirect.operator:
                self._pin_word(redirect.target)
        if not command.words:
            return
        name, args = os.path.basename(command.words[0].text), ShellArguments(command.words[1:])
        if not command.words[0].is_known or command.words[0].has_glob:
            self._give_up("it runs a command that is only known at run time")
        elif name in ("cd", "pushd", "popd"):
            self._paths.directories.change(next(iter(args.operands), None))
        else:
            hands_on = command.operator in ("|", "|&") or any(">" in each.operator for each in command.redirects)
            for word in args.words if name not in _PLAIN or hands_on else ():
                self._pin_word(word, folders=name not in ("git", "ssh", *SHELLS) and not language_of(name))
            self._add_program(name, command.words, command)

    def _add_program(self, name: str, words: Sequence[ShellWord], command: ShellCommand) -> None:
        """What a program runs."""
        args = ShellArguments(words[1:])
        self._add_started(words[0])
        for inner in _carried_commands(name, args, self._paths):
            if inner[0].is_known and inner[0].text:
                self._add_program(os.path.basename(inner[0].text), inner, command)
        if name not in _PLAIN and name not in SHELLS and name not in _ELSEWHERE and not language_of(name):
            self._add_arguments(name, args)
        base = language_of(name)
        if name in SHELLS:
            self._add_shell(args, command)
        elif name in ("source", "."):
            self._add_script(next(iter(args.operands), ShellWord("")), "sourced")
        elif name == "eval":
            self.add_text(" ".join(word.text for word in args.words))
        elif base:
            self._add_interpreter(base, args, command)
        elif why := _why_unknown(name, args, command):
            self._give_up(why)
        self._add_recipes(name, args, command)

    def _add_arguments(self, name: str, args: ShellArguments) -> None:
        """Commands and scripts that any program may run, which its arguments name."""
        if line := split_string(name, args):
            self.add_text(line)
        for inner in nested_commands(name, args.words):
            self.add_text(" ".join(word.text for word in inner))
        before, carries = "", name in CARRIERS or name in (*RUNNERS, *_AS_OTHERS, "find")
        for word in args.words:
            value = ShellWord(word.text.partition("=")[2] if word.text.startswith("-") else word.text)
            is_command = before in _GIT_COMMANDS if name == "git" else carries
            if is_command and " " in value.text.strip():
                self.add_text(value.text)
            elif name == "git" and "=!" in word.text:  # -c alias.x=!command
                self.add_text(word.text.partition("=!")[2])
            elif not carries and value.text and value.is_known and self._scripts.is_script(value):
                self._add_script(value, "")
            before = word.text

    def _add_started(self, word: ShellWord) -> None:
        """The program file itself, if it is not one of the system."""
        path = shutil.which(word.text) if "/" not in word.text else ""
        places = [path] if path else [f"{each}/{word.text}" for each in self._paths.directories.possible if each]
        if any(os.path.exists(os.path.join(os.path.dirname(each), "..", "pyvenv.cfg")) for each in places):
            return self._give_up("it may load any package of a virtual environment")
        file = self._scripts.find_command(word)
        if file is None and path and is_inside(path, self._paths.project):
            file = ShellWord(path)
        if file is not None:
            self._add_script(file, "")
        return None

    def _add_shell(self, args: ShellArguments, command: ShellCommand) -> None:
        if args.has("c"):
            for script in args.values("c"):
                self.add_text(script.text)
        elif not args.operands or args.has("s"):
            self._add_input(command, "sh")
        else:
            self._add_script(args.operands[0], "sh")

    def _add_interpreter(self, base: str, args: ShellArguments, command: ShellCommand) -> None:
        modules = [after.text for word, after in zip(args.words, args.words[1:], strict=False) if word.text == "-m"]
        if base == "python" and modules:
            if _runs_project(modules[0], ShellArguments([])):
                self._give_up(f"{modules[0]} runs code of the whole project")
            for root in self._folders():
                for path in [
                    *loaded_files(base, f"import {modules[0]}"),
                    f"{modules[0].replace('.', '/')}/__main__.py",
                ]:
                    self._add_code_file(ShellWord(os.path.join(root, path)), base, root)
                self._pin_modules(root, "")
            return
        if base in _LOADING_OPTIONS and any(re.match(_LOADING_OPTIONS[base], word.text) for word in args.words):
            self._give_up("it loads code that its options name")
        given = list(find_code(base, args, None))
        for code in given:
            self.add_code(base, code.text, "")
        operands = [word for word in args.operands if word not in given]
        if operands and base != "awk":
            self._add_script(operands[0], base)
        elif not given and base != "awk":
            self._add_input(command, base)

    def _add_input(self, command: ShellCommand, kind: str) -> None:
        """Code from a pipe or a here-document."""
        given = [each.target for each in command.redirects if "<" in each.operator]
        if command.stdin is not None:
            text = command.stdin.text
            return self.add_text(text) if kind == "sh" else self.add_code(kind, text, "")
        if given:
            return self._add_script(given[-1], kind)
        if command.upstream is not None:
            return self._give_up("it runs what comes through a pipe")
        return None

    def _add_script(self, word: ShellWord, kind: str) -> None:
        """A file that is run: its content, and what that loads."""
        if not word.is_known or word.has_glob:
            return self._give_up("it runs a file whose name is only known at run time")
        paths = [path for path in self._paths.directories.resolve(word) if path]
        if not paths or None in self._paths.directories.resolve(word):
            return self._give_up(f"it runs {word.text}, in a folder that is not known")
        for path in paths:
            main = os.path.join(path, "__main__.py") if kind == "python" and os.path.isdir(path) else path
            file = self._pin(main)
            if file is None or not file.text:
                if not re.match(_SYSTEM, path):
                    self._give_up(f"it runs {word.text}, whose content cannot be shown")
                continue
            self._add_content(file, kind)
        return None

    def _add_content(self, file: PinnedFile, kind: str, root: str = "") -> None:
        if file.path in self._searched:
            return
        self._searched.add(file.path)
        self._runs = True
        shebang = re.match(r"#!\s{0,5}\S{0,100}?([\w.]+)(?:[ \t]{1,5}(\w+))?", file.text)
        program = (shebang[2] if shebang[1] == "env" else shebang[1]) if shebang else "sh"
        base = language_of(program or "") if kind in ("", "sh", "sourced") else kind
        if base:
            self.add_code(base, file.text, file.path, root)
        else:
            with self._paths.directories.restored(keep=kind == "sourced"):
                self.add_text(file.text)

    def _add_code_file(self, word: ShellWord, base: str, root: str = "") -> None:
        """A file that code loads, if it is there."""
        for path in self._paths.directories.resolve(word):
            if path and path not in self._searched and (file := self._pin(path)) is not None and file.text:
                self._add_content(file, base, root)

    def _add_recipes(self, name: str, args: ShellArguments, command: ShellCommand) -> None:
        for file, text in find_recipes(name, args, self._scripts, command.stdin):
            self._pin_word(file)
            if name in ("make", "gmake"):
                self._add_makefile(args, self._scripts.read(file))
            self._runs |= bool(text)
            for line in text.splitlines():
                self.add_text(line)
        if name in PACKAGE_PROGRAMS:
            for each in _PACKAGE_FILES:
                self._pin_word(ShellWord(each))
            self._add_package_scripts(args)

    def _add_makefile(self, args: ShellArguments, text: str, depth: int = 0) -> None:
        """The files that a makefile includes; what it runs besides its recipes is not known."""
        if args.has("C", "directory", "include-dir", "eval") or re.search(_MAKE_CODE, text) or depth > MAX_DEPTH:
            return self._give_up("its makefile runs what cannot be seen in its rules")
        for name in included_names(text):
            if "$" in name:
                return self._give_up("its makefile includes a file that is only known at run time")
            self._pin_word(ShellWord(name, has_glob="*" in name))
            self._add_makefile(args, self._scripts.read(ShellWord(name)), depth + 1)
        return None

    def _add_package_scripts(self, args: ShellArguments) -> None:
        """Scripts that `npm publish` and `npm install` run besides, and programs of node_modules."""
        action = args.operands[0].text if args.operands else "install"
        if action in ("exec", "x", "dlx", "rebuild", "create", "init"):
            self._give_up(f"npm {action} runs code of packages")
        several = args.has("wr", "workspace", "workspaces", "ws", "recursive", "filter") or action in (
            "workspace",
            "workspaces",
        )
        others = any(os.path.lexists(os.path.join(place, each)) for place in self._folders() for each in _PACKAGE_CODE)
        if not self._scripts.read(ShellWord("package.json")) and self._find_around("package.json"):
            self._give_up("it takes the package.json of a folder above")
        if several or others or re.search(_PACKAGE_SETTINGS, self._scripts.read(ShellWord(".npmrc"))):
            self._give_up("its settings run code of the project")
        for each in (*_LIFECYCLE, "preinstall", "install", "postinstall"):
            inner = ShellArguments([ShellWord("run"), ShellWord(each)])
            if action in ("publish", "pack", "install", "i", "ci", "add", "version"):
                for _, text in find_recipes("npm", inner, self._scripts, None):
                    self._runs |= bool(text)
                    self._add_package_lines(text)
        for _, text in find_recipes("npm", args, self._scripts, None):
            self._add_package_lines(text)

    def _add_package_lines(self, text: str) -> None:
        for line in text.splitlines():
            for name in re.findall(_SCRIPT_PROGRAM, line):
                if self._find_around(f"node_modules/.bin/{name}"):
                    self._give_up(f"it runs {name} of node_modules")
            self.add_text(line)

    def _pin_word(self, word: ShellWord, *, folders: bool = False) -> None:
        """The files that a word may name, also as in `--file=x`, `@x` or `-ox`."""
        if not word.is_known or len(word.text) > 4096:
            return
        attached = {word.text[2:]} if re.match(r"-\w[~./\w]", word.text) else set[str]()
        for text in {word.text, *re.split(r"[=@:,<]", word.text)} | attached:
            if text and not text.startswith("-"):
                for path in self._paths.directories.expand(ShellWord(text, word.has_glob)):
                    if folders and os.path.isdir(path) and not re.match(_SYSTEM, path):
                        self._pin_folder(path)
                    else:
                        self._pin(path)

    def _pin_folder(self, folder: str) -> None:
        """All files below a folder, if they are few."""
        found: list[str] = []
        for place, folders, names in os.walk(folder):
            folders.sort()
            found += [os.path.join(place, name) for name in sorted(names)]
            if len(found) > MAX_FILES or len(folders) > MAX_FILES:
                return self._give_up(f"it reads {folder}, which holds too many files")
        for path in found:
            self._pin(path)
        return None

    def _folders(self) -> list[str]:
        return [path for path in self._paths.directories.possible if path]

    def _pin(self, path: str, note: str = "") -> PinnedFile | None:
        """Note a regular file that is not one of the system; None if there is none. `note`: what is shown instead of
        its text."""
        known = self._found.get(path)
        if re.match(_SYSTEM, path) or (known is not None and (note or known.note != MODULE)):
            return known
        if len(self._found) >= MAX_FILES:
            self._give_up(f"it reads more than {MAX_FILES} files")
            return None
        file = _read(path, hidden=self._places.is_withheld)
        if file is None:
            return None
        if note and file.digest:
            file = PinnedFile(path, file.digest, note=note)
        if not file.digest:
            self._give_up(f"{os.path.basename(path)} {file.note}")
        self._found[path] = file
        return file


def _carried_commands(name: str, args: ShellArguments, paths: PathChecker) -> Iterator[Sequence[ShellWord]]:
    """Commands that `env`, `sudo`, `uv run` or `find -exec` may run: each word may be the first of one."""
    if name == "find":
        yield from find_exec_commands(args.words, paths)
    elif (name in CARRIERS and name != "ssh") or name in (*RUNNERS, *_AS_OTHERS):
        for at, word in enumerate(args.words):
            if not word.text.startswith("-") and "=" not in word.text:
                yield args.words[at:]


def _runs_project(name: str, args: ShellArguments) -> bool:
    """True for a program that runs code of the whole project."""
    words = {word.text for word in args.operands[:2]}
    if name in ("docker", "podman", "nerdctl"):
        return bool(words & {"compose", "build", "buildx"})
    if name in RUNNERS and "run" in words:
        return True
    return name in _RUNS_PROJECT or (name == "cmake" and args.has("", "build"))


def _why_unknown(name: str, args: ShellArguments, command: ShellCommand) -> str:
    """Why it cannot be said what a program runs; empty if it can."""
    texts = [word.text for word in args.words]
    if _runs_project(name, args):
        return f"{name} runs code of the whole project"
    if name == "git" and any(text.startswith("--exec-path=") for text in texts):
        return "it names where git finds its programs"
    found = name == "find" and any("{}" in text for before, text in pairwise(texts) if before in _FIND_RUNS)
    if found or (name in ("xargs", "parallel") and command.upstream is None):
        return "it runs a command that is only known at run time"
    return ""


def _names_in(folder: str) -> Iterable[str]:
    try:
        return sorted(os.listdir(folder))
    except OSError:
        return ()


def _read(path: str, hidden: Callable[[str], bool]) -> PinnedFile | None:
    """The file as it is now; None if it is not a regular file."""
    try:
        handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except (OSError, ValueError):
        return None
    try:
        facts = os.fstat(handle)
        if not stat.S_ISREG(facts.st_mode):
            return None
        if facts.st_size > MAX_FILE_BYTES:
            return PinnedFile(path, "", note="is too large to check")
        with open(handle, "rb", buffering=0, closefd=False) as file:
            content = file.read(MAX_FILE_BYTES)
    except OSError:
        return None
    finally:
        os.close(handle)
    digest = hashlib.sha256(content).hexdigest()
    if hidden(path):
        return PinnedFile(path, digest, note="not shown: it may hold secrets")
    if b"\0" in content:
        return PinnedFile(path, digest, note=f"{len(content):,} bytes, not text")
    return PinnedFile(path, digest, content.decode(errors="replace"))
