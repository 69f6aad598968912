"""Decides which shell commands need approval on a machine without a sandbox. It is not one itself.

It looks through programs that run other commands; a command that is only known at run time needs approval.
"""

import os
import re
from collections.abc import Iterable, Sequence

from alipes.agent.approval.paths import PathChecker
from alipes.agent.approval.risk import Counts, Risk
from alipes.agent.approval.shell.carriers import split_string, words_after
from alipes.agent.approval.shell.code import find_code, language_of
from alipes.agent.approval.shell.host.arguments import check_arguments, check_streams
from alipes.agent.approval.shell.host.embedded import (
    check_code,
    check_other_shell,
    check_script,
    loaded_files,
    piped_commands,
    quote_words,
)
from alipes.agent.approval.shell.host.git_settings import check_git_settings
from alipes.agent.approval.shell.host.name_lists import check_name_lists
from alipes.agent.approval.shell.host.programs import RULES, check_editor_command, check_statement
from alipes.agent.approval.shell.host.recipes import find_recipes
from alipes.agent.approval.shell.host.script_files import ScriptFiles, written_content
from alipes.agent.approval.shell.host.subcommands import ALWAYS_ASK, HOST_SUBCOMMANDS
from alipes.agent.approval.shell.lexer import UNKNOWN, ShellArguments, ShellWord, Unparsable
from alipes.agent.approval.shell.parser import Redirect, ShellCommand, parse_substitutions
from alipes.agent.approval.shell.rules import FD_PATHS, HIDDEN, PATH_VARIABLES, SHELLS, CommandChecker, any_risk
from alipes.agent.approval.shell.subcommands import for_each
from alipes.agent.approval.shell.variables import (
    DECLARE_COMMANDS,
    LOADING_OPTIONS,
    LOADING_VARIABLES,
    TEXT_VARIABLES,
    TRUSTED_VARIABLES,
)
from alipes.config.protected_paths import is_secret_in_project
from alipes.tools.common import Places

_TEXT_OPTION = r"(?is)[\w.=-]{0,80}(?:exec|command|cmd|pager|filter|helper|scripts\.[\w:-]{1,40})=(.+)"
_BANG_PROGRAMS = {"git", "vi", "vim", "nvim", "ex", "ed", "view", "man", "less", "more", "mutt", "gdb"}
"""Programs in which `!` runs a shell command."""
_BANG = r"(?s)(?:^:?(?:[%\d,$.]{0,9}\s{0,5}(?:r|w|read|write)\s{0,5})?|=)!(.+)"
_CODE_MODULES = for_each("timeit pdb cProfile profile trace runpy coverage bdb code doctest unittest", True)
"""Modules of Python that run code or files given as arguments."""
_EVALUATING = {"test", "[", "read", "let", "unset", "mapfile", "readarray", "getopts", "wait", *DECLARE_COMMANDS}
"""Builtins that evaluate `a[$(x)]` even in quotes."""
_HARMLESS_SCRIPTS = {"activate", ".env", "nvm.sh", ".bashrc", ".profile", ".zshrc", "env"}
"""Files that are often sourced and do not change the directory."""
_BOMB = Risk("bomb", "is a fork bomb (starts copies of itself endlessly)")


def judge(command: str, places: Places, workdir: str, start: str = "", *, counts: Counts | None = None) -> Risk | None:
    """The risk of running `command`; None if it needs no approval.

    `workdir` is the project directory, where more is allowed; `start` is where it runs, if elsewhere.
    """
    return HostChecker(PathChecker(places, workdir, start), counts or any_risk).check(command)


def judge_code(code: str, places: Places, workdir: str, *, counts: Counts | None = None) -> Risk | None:
    """The risk of running Python code."""
    checker = HostChecker(PathChecker(places, workdir), counts or any_risk)
    risk = checker.check_language("python", ShellWord(code))
    return risk if risk and checker.counts(risk) else None


class HostChecker(CommandChecker):
    """Checks also what a sandbox would contain: other programs, secrets, scripts and code."""

    rules = RULES
    subcommands = HOST_SUBCOMMANDS

    def __init__(self, paths: PathChecker, counts: Counts, *, file_depth: int = 0) -> None:
        super().__init__(paths, counts)
        self._files, self._file_depth = ScriptFiles(paths), file_depth
        self._expands_aliases = False
        self._has_loaded_env = False
        self._lists_secrets = False
        self._loop_words: list[ShellWord] = []
        """Wildcards of `for` loops: the names that their variables stand for."""

    def check_text(self, text: str) -> Risk | None:
        self._expands_aliases |= "expand_aliases" in text
        return super().check_text(text)

    def _check_around(self, command: ShellCommand) -> Iterable[Risk | None]:
        for redirect in command.redirects:
            yield from self._check_redirect(redirect, command)
        for check in (self._check_assignments, self._check_input, self._check_loops):
            yield from check(command)

    def _check_redirect(self, redirect: Redirect, command: ShellCommand) -> Iterable[Risk | None]:
        yield from super()._check_redirect(redirect, command)
        if ">" in redirect.operator:
            self._files.note_write(redirect.target, written_content(command), append=">>" in redirect.operator)
        if "<" in redirect.operator:
            yield self._paths.check_read("<", redirect.target)

    def _check_words(self, words: Sequence[ShellWord], command: ShellCommand) -> Risk | None:
        if words[0].text == "for":
            self._loop_words += [word for word in words if word.has_glob]
        return super()._check_words(words, command)

    def _read_file(self, word: ShellWord) -> str:
        return self._files.read(word)

    def _check_assignments(self, command: ShellCommand) -> Iterable[Risk | None]:
        given = list(command.assignments)
        name, words = (command.words[0].text, command.words[1:]) if command.words else ("", [])
        if name in _EVALUATING or (name == "printf" and words[:1] == [ShellWord("-v")]):
            yield from map(self._check_expanded, words)
            pairs = [word.text.partition("=") for word in words if name not in ("test", "[")]
            given += [(each, ShellWord(value if sign else UNKNOWN)) for each, sign, value in pairs]
        yield from (self._check_assignment(each, value) for each, value in given)

    def _check_assignment(self, name: str, value: ShellWord) -> Risk | None:
        if UNKNOWN in name and name.strip(UNKNOWN):
            return Risk("hidden", "sets a variable whose name is only known at run time", unseen=True)
        if re.match(TRUSTED_VARIABLES, name):
            return Risk("hidden", f"sets {name}, which changes what other programs load or run")
        if re.match(LOADING_VARIABLES, name) and (not value.is_known or re.search(LOADING_OPTIONS, value.text)):
            return Risk("hidden", f"sets {name}, which changes what other programs load or run")
        if name == "PATH" and not self._files.add_search_path(value):
            return Risk("hidden", "lets commands be found in the working directory")
        if name in PATH_VARIABLES:
            self._paths.forget_variable(name)
        if re.match(TEXT_VARIABLES, name) and (risk := self.check_text(value.text)):
            return risk
        if name.isupper() and (risk := self._paths.names_protected_file(value)):
            return risk
        return self._check_expanded(value)

    def _check_expanded(self, word: ShellWord) -> Risk | None:
        """Check the substitutions of quoted text, which the shell may expand later."""
        if "$(" not in word.text and "`" not in word.text:
            return None
        try:
            commands = parse_substitutions(word.text, self._paths.known_variables())
        except Unparsable:
            return None
        return self._first(self._check_command(command) for command in commands)

    def _check_input(self, command: ShellCommand) -> Iterable[Risk | None]:
        """File names in a here-string, for `xargs`, or for the `read` of a loop."""
        name = command.words[0].text if command.words else ""
        takes_names = name in ("", "xargs", "read", "mapfile", "readarray") or language_of(name)
        if name in ("read", "mapfile", "readarray", "xargs") and self._lists_secrets:
            yield Risk("secret", "may read files with secrets, whose names it lists")
        if command.stdin is not None and takes_names:
            yield from (self._paths.check_read("<", ShellWord(text)) for text in command.stdin.text.split()[:200])
            yield self._check_expanded(command.stdin)

    def _check_loops(self, command: ShellCommand) -> Iterable[Risk | None]:
        names = [words[0].text for words in (command.words, command.upstream and command.upstream.words) if words]
        if command.in_function and len(names) == 2 and names[0] == names[1] and names[0] in self._functions:
            yield _BOMB  # it pipes itself into itself
        if command.in_endless_loop and command.operator == "&":
            yield _BOMB

    def _check_program(
        self, name: str, words: Sequence[ShellWord], args: ShellArguments, command: ShellCommand
    ) -> Iterable[Risk | None]:
        self._lists_secrets |= command.operator == "|" and any(
            self._paths.check_read("", word) for word in args.operands
        )
        yield ALWAYS_ASK.get(name)
        yield self._paths.check_cwd(name)
        yield from self._check_arguments(name, args)
        self._files.note_copies(name, args)
        self._files.note_edits(name, args)
        for target in args.operands if name == "tee" else ():
            self._files.note_write(target, self._find_stdin(command), append=args.has("a", "append"))
        yield self.check_text(line) if (line := split_string(name, args)) else None
        found = words_after(args.words, ("-x", "-X", "--exec", "--exec-batch")) if name in ("fd", "fdfind") else []
        yield self._check_words([*found, ShellWord(UNKNOWN)], command) if found else None
        yield self._check_carried(name, args, command)
        yield self._check_fed(name, args, command)
        yield self._check_started(words[0])
        yield self._check_recipes(name, args, command)
        yield self._first(self._check_file(word, "") for word in self._files.find_option_files(name, args))
        yield from check_name_lists(name, args, self._find_stdin(command), self._files, self._paths)
        yield self._check_printed_env(name, args)
        yield check_streams(name, args, command)
        yield from check_arguments(name, args, self._paths, is_language=bool(language_of(name)))
        yield self._check_text_options(name, args)
        yield self._check_nested(name, words[1:], command)

    def _check_arguments(self, name: str, args: ShellArguments) -> Iterable[Risk | None]:
        yield from check_git_settings(args) if name == "git" else ()
        yield from super()._check_arguments(name, args)
        if re.match(r"docker-credential-|git-credential-", name):
            yield Risk("secret", "prints credentials")

    def _check_fed(self, name: str, args: ShellArguments, command: ShellCommand) -> Risk | None:
        """Check the code or commands given to a shell or interpreter."""
        if name in ("zsh", "fish") and (risk := check_other_shell(name, args)):
            return risk
        if name in SHELLS or (name == "parallel" and not args.operands):
            return self._check_shell(args, command)
        if name in ("eval", "trap", "alias", "source", "."):
            return self._check_builtin(name, args, command)
        if name in ("sed", "gsed") and (scripts := args.values("f", "file")):
            texts = [self._files.read(word) for word in scripts]
            return (
                HIDDEN
                if UNKNOWN in "".join(texts) or not all(word.is_known for word in scripts)
                else RULES[name](ShellArguments([*map(ShellWord, texts)]), self._paths)
            )
        stdin = self._find_stdin(command)
        if name in ("ed", "ex", "vim", "vi", "nvim"):
            unread = stdin is None and any("<" in each.operator for each in command.redirects)
            is_hidden = unread or (stdin is not None and not stdin.is_known)
            return HIDDEN if is_hidden and not _reads_nothing(command) else self._check_editor_input(args, stdin)
        if name in ("psql", "mysql", "mariadb", "sqlite3", "duckdb") and stdin is not None and stdin.is_known:
            return check_statement(stdin.text)
        base = language_of(name)
        modules = [at + 1 for at, word in enumerate(args.words[:-1]) if word.text == "-m"]
        if base == "python" and modules:
            module = ShellWord(args.words[modules[0]].text.replace(".", "/") + ".py")
            rest = args.words[modules[0] + 1 :]
            inner = self._check_inner(args.words[modules[0] :], command) or self._check_file(module, base)
            return inner or (self._check_module(rest) if args.words[modules[0]].text in _CODE_MODULES else None)
        if not base:
            return None
        scripts = args.values("f", "file") if base == "awk" else []
        given = [*find_code(base, args, stdin), *(ShellWord(self._files.read(word)) for word in scripts)]
        modules_of_perl = "".join(f"use {word.text[2:]};" for word in args.options if word.text.startswith("-M"))
        given = [ShellWord(modules_of_perl + word.text) for word in given] if base == "perl" else given
        code = self._first(self.check_language(base, word) for word in given)
        loaded = args.values("r", "require", "import", "loader") if base in ("node", "ruby", "bun") else []
        found = self._first(self._check_loaded(word.text, base) for word in loaded)
        return code or found or self._first(self._check_file(word, base) for word in args.operands[:2] if word.text)

    def _check_module(self, words: Sequence[ShellWord]) -> Risk | None:
        """Check what a module such as `timeit` or `pdb` runs: code or program files in its arguments."""
        files = [word for word in words if self._files.read(word)] or [ShellWord("test*.py", has_glob=True)]
        named = [ShellWord(f"{word.text.replace('.', '/')}.py") for word in words if word.text.isidentifier()]
        code = self._first(self.check_language("python", word) for word in words if word not in files)
        return code or self._first(self._check_file(word, "python") for word in (*files, *named))

    def check_language(self, base: str, code: ShellWord) -> Risk | None:
        """Check code of a language, and the local files that it loads."""
        risk = check_code(quote_words(code) if base == "tclsh" else code, self._paths)
        if risk and self.counts(risk):
            return risk
        self._files.note_literals(code.text)
        for text in piped_commands(code.text) if base == "awk" else ():
            if (inner := self.check_text(text)) and self.counts(inner):
                return inner
        return self._first(self._check_loaded(path, base) for path in loaded_files(base, code.text))

    def _check_loaded(self, path: str, base: str) -> Risk | None:
        """Check a file that code loads; a local one that cannot be read is not known."""
        if path.startswith(".") and not self._files.read(ShellWord(path)) and not path.endswith(".json"):
            return Risk("hidden", f"loads {path}, which cannot be read", unseen=True)
        return self._check_file(ShellWord(path), base) if path else None

    def _check_editor_input(self, args: ShellArguments, stdin: ShellWord | None) -> Risk | None:
        scripts = [self._files.read(word) for word in args.values("Su") if not word.text.isupper()]
        if not all(scripts):
            return Risk("hidden", "runs a script of an editor that cannot be read", unseen=True)
        texts = [stdin.text] if stdin is not None and stdin.is_known else []
        for line in "\n".join([*texts, *scripts]).splitlines()[:500]:
            shell = re.match(r"[\s:\d,%$]{0,20}(?:[rwe]\s{0,5})?!(.+)", line)
            risk = check_editor_command(line, self._paths) or (self.check_text(shell[1]) if shell else None)
            if risk:
                return risk
        return None

    def _check_file(self, word: ShellWord | None, kind: str) -> Risk | None:
        """Check a file that is run: strictly if this text wrote it, else only for what is clearly dangerous."""
        if word is None or self._file_depth > 1:
            return None
        if others := self._files.find_scripts(word, kind, self._loop_words):
            return self._first(self._check_file(each, kind) for each in others)
        content = self._files.read(word)
        if self._files.was_written(word) and (not content or UNKNOWN in content):
            return Risk("hidden", "runs a file that it has just written", unseen=True)
        if word.text.endswith(".pyc"):
            return Risk("hidden", "runs a compiled program", unseen=True)
        fresh = HostChecker(self._paths.copy(), lambda risk: not risk.unseen and self.counts(risk), file_depth=2)
        if risk := self._first(map(fresh.check_text, self._files.find_literals(word))):
            return risk
        if not content:
            return None
        shebang = re.match(r"#!\s{0,5}\S{0,100}?([\w.]+)(?:[ \t]{1,5}(\w+))?", content)
        program = (shebang[2] if shebang[1] == "env" else shebang[1]) if shebang else "sh"
        kind = kind or language_of(program or "") or "sh"
        inner = HostChecker(self._paths, self.counts, file_depth=self._file_depth + 1)
        if self._files.was_written(word):
            return inner.check_text(content) if kind == "sh" else inner.check_language(kind, ShellWord(content))
        risk = fresh.check_text(content) if kind == "sh" else check_script(content, self._paths)
        return risk if risk and not risk.unseen else None

    def _check_builtin(self, name: str, args: ShellArguments, command: ShellCommand) -> Risk | None:
        if name == "eval":
            self._functions_move |= command.in_function
            return self.check_text(" ".join(word.text for word in args.words))
        if name == "trap":
            return self._check_later(args.operands[0].text) if args.operands else None
        if name == "alias" and self._expands_aliases:
            return HIDDEN
        if name == "alias":
            texts = [word.text.partition("=")[2] for word in args.words if "=" in word.text]
            return self._first(map(self._check_later, texts))
        return self._check_source(args, command)

    def _check_later(self, text: str) -> Risk | None:
        """Check a text that runs at another time; a `cd` in it makes the directory unknown from then on."""
        before = set(self._paths.directories.possible)
        risk = self.check_text(text)
        if self._paths.directories.possible != before:
            self._paths.directories.lose()
            self._paths.directories.is_predictable = False
        return risk

    def _check_source(self, args: ShellArguments, command: ShellCommand) -> Risk | None:
        file = args.operands[0] if args.operands else ShellWord("")
        if file.text == "/dev/stdin":
            return self.check_text((self._find_stdin(command) or ShellWord("")).text)
        if not file.is_known or file.text.startswith(FD_PATHS):
            return HIDDEN
        risk = self._check_file(file, "sh")
        content = self._files.read(file)
        moves = re.search(r"\b(?:cd|pushd|popd|eval|source)\b", content) is not None
        if moves or (not content and os.path.basename(file.text) not in _HARMLESS_SCRIPTS):
            self._paths.directories.lose()
        self._functions_move |= command.in_function
        return risk

    def _check_started(self, word: ShellWord) -> Risk | None:
        """Check the program file that a command runs. In a trial, only one that is certainly a program."""
        if self._is_trial and not (word.text.startswith(("./", "/", "../")) and self._files.is_program(word)):
            return None
        return self._check_file(self._files.find_command(word), "")

    def _check_recipes(self, name: str, args: ShellArguments, command: ShellCommand) -> Risk | None:
        """Check the commands of a makefile or package.json that the program runs."""
        if name in ("make", "gmake") and (shell := next((w for w in args.words if w.text.startswith("SHELL=")), None)):
            return self._check_file(ShellWord(shell.text[6:]), "sh") or self._paths.check_read(name, shell)
        stdin = self._find_stdin(command)
        for file, text in find_recipes(name, args, self._files, stdin) if self._file_depth < 2 else ():
            was_written = self._files.was_written(file) or file.text in ("-", "/dev/stdin") or not file.is_known
            if was_written and UNKNOWN in text:
                return Risk("hidden", "runs a file that it has just written", unseen=True)
            inner = HostChecker(self._paths.copy(), self.counts, file_depth=max(self._file_depth, 1))
            risk = self._first(map(inner.check_text, text.splitlines()))
            if risk and (was_written or not risk.unseen):
                return risk
        return None

    def _check_printed_env(self, name: str, args: ShellArguments) -> Risk | None:
        """Printing variables after `.env` of the project was loaded."""
        if name in ("source", ".") and any(is_secret_in_project(word.text) for word in args.operands):
            self._has_loaded_env = True
        prints = name in ("env", "printenv", "set", "export", "declare", "typeset") and not args.operands
        shows = name in ("printenv", "echo", "printf") and any(not word.is_known for word in args.operands)
        prints = prints or shows
        return Risk("secret", "prints values of a .env file") if self._has_loaded_env and prints else None

    def _check_text_options(self, name: str, args: ShellArguments) -> Risk | None:
        """Check arguments that are commands: `--checkpoint-action=exec=x`, `git -c alias.y='!x'`."""
        for at, word in enumerate(args.words):
            found = re.fullmatch(_TEXT_OPTION, word.text)
            text = found[1] if found else ""
            if name in _BANG_PROGRAMS and (shell := re.search(_BANG, word.text)):
                text = shell[1]
            if name == "git" and word.text in ("--exec", "-x", "foreach", "run", "--tree-filter", "--upload-pack"):
                text = " ".join(each.text for each in args.words[at + 1 :])
            if text and (risk := self.check_text(text)):
                return risk
            alias = re.fullmatch(r"(?s)alias\.[^=]+=([^!].*)", word.text) if name == "git" else None
            if alias and (risk := self.check_text(f"git {alias[1]}")):
                return risk
        return None


def _reads_nothing(command: ShellCommand) -> bool:
    return any(redirect.target.text == "/dev/null" for redirect in command.redirects)
