"""Fifty everyday tasks of people who work with a terminal, as tool calls."""

from typing import Any, NamedTuple

INDEX = "INDEX_URL"
INDEX_HOST = "INDEX_HOST"
"""Replaced by the address of a package index on this machine, and its host."""


class Step(NamedTuple):
    """A tool call; `shows`: a text in its result."""

    command: str = ""
    shows: str = "[exit code 0]"
    background: bool = False
    pty: bool = False
    process: str = ""
    data: str = ""

    def arguments(self, folder: str) -> tuple[str, dict[str, Any]]:
        if self.process:
            action, _, name = self.process.partition(" ")
            return "process", {"action": action, "session_id": name, "data": self.data, "timeout": 20}
        more = {name: True for name in ("background", "pty") if getattr(self, name)}
        return "terminal", {"command": self.command, "workdir": folder, "timeout": 60, **more}


class Task(NamedTuple):
    name: str
    steps: tuple[Step, ...]
    needs: tuple[str, ...] = ()
    makes: str = ""
    """A file of its folder that exists afterwards."""


def _task(name: str, command: str, *, needs: str = "", makes: str = "", shows: str = "[exit code 0]") -> Task:
    return Task(name, (Step(command, shows),), tuple(needs.split()), makes)


_COMMIT = "git init -q . && echo one >a && git add a && git commit -qm one"
_GIT = (
    _task("git init and commit", f"{_COMMIT} && git log --oneline | wc -l", needs="git", makes=".git/HEAD"),
    _task("git with the user's identity", f"{_COMMIT} && git log -1 --format='%an <%ae>'", needs="git",
          shows="Ada Lovelace <ada@example.com>"),
    _task("git branch and merge", f"{_COMMIT} && git switch -qc side && echo 2 >b && git add b && git commit -qm two &&"
          " git switch -q - && git merge -q --no-ff -m merge side && ls b", needs="git", makes="b"),
    _task("git rebase", f"{_COMMIT} && git branch base && echo 2 >b && git add b && git commit -qm two && git switch -q"
          " base && echo 3 >c && git add c && git commit -qm three && git switch -q - && git rebase -q base && ls c",
          needs="git", makes="c"),
    _task("git stash", f"{_COMMIT} && echo two >a && git stash -q && cat a && git stash pop -q && grep two a", needs="git"),
    _task("git work tree", f"{_COMMIT} && git worktree add -q tree && ls tree/a", needs="git", makes="tree/a"),
    _task("git push to a bare remote", f"{_COMMIT} && git init -q --bare remote.git && git remote add origin remote.git"
          " && git push -q -u origin HEAD && git -C remote.git log --oneline", needs="git", shows="one"),
    _task("git clone of a local repository", f"mkdir from && cd from && {_COMMIT} && cd .. && git clone -q from copy &&"
          " ls copy/a", needs="git", makes="copy/a"),
    _task("git tag and describe", f"{_COMMIT} && git tag -a v1 -m v1 && git describe", needs="git", shows="v1"),
    _task("git bisect", f"{_COMMIT} && for i in 1 2 3; do echo $i >n; git add n; git commit -qm $i; done; git bisect start"
          " HEAD HEAD~3 && git bisect run sh -c 'test $(cat n) -lt 3'", needs="git", shows="is the first bad commit"),
)  # fmt: skip
_WHEEL = """mkdir -p src/tiny && echo 'VALUE = 42' >src/tiny/__init__.py && cat >wheel.py <<'END'
import zipfile
info = "tiny-1.0.dist-info"
with zipfile.ZipFile("tiny-1.0-py3-none-any.whl", "w") as wheel:
    wheel.write("src/tiny/__init__.py", "tiny/__init__.py")
    wheel.writestr(f"{info}/METADATA", "Metadata-Version: 2.1\\nName: tiny\\nVersion: 1.0\\n")
    wheel.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\\nGenerator: x\\nRoot-Is-Purelib: true\\nTag: py3-none-any\\n")
    wheel.writestr(f"{info}/RECORD", "")
END
python3 wheel.py"""
_PYTHON = (
    _task("python script", "echo 'print(6 * 7)' >a.py && python3 a.py", shows="42"),
    _task("virtual environment", "python3 -m venv --without-pip v && v/bin/python -c 'import sys; print(sys.prefix)'",
          shows="/v"),
    _task("pip install of a local wheel", f"{_WHEEL} && python3 -m pip install -q --no-index --target lib --no-deps"
          " tiny-1.0-py3-none-any.whl && PYTHONPATH=lib python3 -c 'import tiny; print(tiny.VALUE)'", shows="42"),
    Task("pip install from an index", (Step(f"python3 -m pip install -q --target lib --index-url {INDEX} --trusted-host {INDEX_HOST} tiny &&"
         " PYTHONPATH=lib python3 -c 'import tiny; print(tiny.VALUE)'", "42"),)),
    _task("unit tests of Python", "printf 'import unittest\\nclass T(unittest.TestCase):\\n    def test_a(self):\\n"
          "        self.assertEqual(1, 1)\\n' >test_a.py && python3 -m unittest -q test_a", shows="OK"),
    _task("C extension of Python", """cat >m.c <<'END'
#include <Python.h>
static struct PyModuleDef d = {PyModuleDef_HEAD_INIT, "m", 0, -1, 0};
PyMODINIT_FUNC PyInit_m(void) { return PyModule_Create(&d); }
END
gcc -shared -fPIC $(python3 -c 'import sysconfig; print("-I" + sysconfig.get_path("include"))') m.c -o m.so &&
python3 -c 'import m; print(m.__name__)'""", needs="gcc", makes="m.so"),
    _task("SQLite in Python", "python3 -c \"import sqlite3; c = sqlite3.connect('d.db'); c.execute('create table t(x)');"
          " c.execute('pragma journal_mode=wal'); c.execute('insert into t values (7)'); c.commit();"
          " print(c.execute('select x from t').fetchone())\"", makes="d.db", shows="(7,)"),
    _task("processes of Python", "python3 -c \"from multiprocessing import Pool; print(sum(Pool(2).map(abs, range(9))))\"",
          shows="36"),
)  # fmt: skip
_MAKEFILE = "printf 'all: a b\\n\\t$(MAKE) -C sub\\na b:\\n\\techo $@ >$@\\n' >Makefile && mkdir sub && printf"
_COMPILERS = (
    _task("C program", "echo 'int main(void){return 0;}' >a.c && gcc -o a a.c && ./a", needs="gcc", makes="a"),
    _task("C++ program", "printf '#include <iostream>\\nint main(){std::cout << 42;}' >a.cc && g++ -o a a.cc && ./a",
          needs="g++", shows="42"),
    _task("make with sub-makes", f"{_MAKEFILE} 'all:\\n\\techo c >c\\n' >sub/Makefile && make -j2 -s", needs="make",
          makes="sub/c"),
    _task("cmake", "printf 'cmake_minimum_required(VERSION 3.10)\\nproject(p C)\\nadd_executable(p p.c)' >CMakeLists.txt"
          " && echo 'int main(void){return 0;}' >p.c && cmake -S . -B build >/dev/null && cmake --build build && build/p",
          needs="cmake gcc", makes="build/p"),
    _task("cargo new, build and test", "cargo new -q --vcs none p && cd p && cargo build -q --offline && cargo test -q"
          " --offline", needs="cargo", makes="p/target/debug/p"),
    _task("go program", "printf 'package main\\nfunc main() { println(42) }' >a.go && go run a.go", needs="go", shows="42"),
    _task("Java program", "echo 'class A { public static void main(String[] a) { System.out.println(42); } }' >A.java &&"
          " javac A.java && java -Xshare:auto -cp . A", needs="javac", shows="42"),
    _task("Perl and Tcl", "perl -e 'print 6*7' && echo 'puts [expr 6*7]' | tclsh", needs="perl tclsh", shows="42"),
    _task("Node script", "echo 'console.log(6*7)' >a.js && node a.js", needs="node", shows="42"),
    _task("npm init and a local package", "mkdir dep && cd dep && npm init -y >/dev/null && echo 'module.exports=42'"
          " >index.js && npm pack --silent && cd .. && npm init -y >/dev/null && npm install --silent --offline --no-audit"
          " --no-fund ./dep/dep-1.0.0.tgz && node -p 'require(\"dep\")'", needs="node npm", shows="42"),
    _task("npm script", "npm init -y >/dev/null && npm pkg set scripts.hi='node -p 6*7' && npm run --silent hi",
          needs="node npm", shows="42"),
)  # fmt: skip
_FILES = (
    _task("tar and gzip", "mkdir d && echo x >d/a && tar czf d.tgz d && rm -r d && tar xzf d.tgz && cat d/a", makes="d/a"),
    _task("xz", "echo hello >a && xz a && xz -dc a.xz", needs="xz", shows="hello"),
    _task("zip and unzip", "echo x >a && zip -q a.zip a && rm a && unzip -q a.zip && cat a", needs="zip unzip", makes="a"),
    _task("sqlite3", "sqlite3 d.db 'create table t(x); insert into t values (7); select * from t'", needs="sqlite3",
          makes="d.db", shows="7"),
    _task("sed, awk, grep, find and xargs", "seq 9 | sed 's/$/ x/' >a && awk '{s += $1} END {print s}' a && find . -name a"
          " -print0 | xargs -0 grep -c x", shows="45"),
    _task("jq", "echo '{\"a\": [1, 2]}' | jq '.a | add'", needs="jq", shows="3"),
    _task("diff and patch", "echo 1 >a; echo 2 >b; diff -u a b >p; patch -s a <p && cat a", needs="patch", shows="2"),
    _task("rsync", "mkdir d && echo x >d/a && rsync -a d/ e && cat e/a", needs="rsync", makes="e/a"),
    _task("file modes and links", "echo 'echo run' >s && chmod 750 s && ln -s s l && ./l && stat -c %a s", shows="750"),
    _task("temporary files", "f=$(mktemp) && echo x >$f && d=$(mktemp -d) && mv $f $d/y && cat $d/y && rm -r $d"),
    _task("openssl and ssh-keygen", "openssl rand -hex 4 && ssh-keygen -q -t ed25519 -N '' -f key", needs="openssl ssh-keygen",
          makes="key.pub"),
    _task("disk usage", "du -sh . && df . | tail -1"),
    _task("large output", "seq 200000", shows="200000"),
)  # fmt: skip
_SHELL = (
    _task("script with strict settings", "cat >s <<'END'\n#!/usr/bin/env bash\nset -euo pipefail\nfor x in a b; do echo $x;"
          " done | sort -r\nEND\nchmod +x s && ./s", shows="b\na"),
    _task("nested shells", "bash -c 'bash -c \"echo $((6 * 7))\"'", shows="42"),
    _task("long pipeline", "seq 1000 | grep 7 | sort -n | uniq | tail -n 5 | head -n 1 | tr 7 x | rev | rev | wc -c"),
    _task("locale and time zone", "TZ=Asia/Tokyo date -d @0 +%H && LC_ALL=C.UTF-8 printf 'ä' | wc -m", shows="09"),
    _task("own processes only", "sleep 30 & ps -e -o args= | grep -c '^sleep 30'; kill %1; ps -e | wc -l"),
    Task("program with a terminal", (Step("tty -s && stty size", "24 80", pty=True),)),
    Task("background job, its output, and its end", (
        Step("echo started; exec sleep 100", "is running in the background", background=True),
        Step(process="list", shows="is running"),
        Step(process="kill LAST", shows="ended after"),
    )),
    Task("input of a background program", (
        Step("read -r line; echo got $line", "is running in the background", background=True),
        Step(process="write LAST", data="hello\n", shows="got hello"),
    )),
    Task("server on loopback, and a client", (
        Step("echo hi >page; exec python3 -u -m http.server 8765 --bind 127.0.0.1", "is running", background=True),
        Step("for i in $(seq 50); do curl -s --noproxy '*' http://127.0.0.1:8765/page && exit; sleep 0.1; done", "hi"),
        Step(process="kill LAST", shows="ended after"),
    ), needs=("curl",)),
    Task("tmux session", (Step("tmux -S sock new-session -d 'echo hi >out; sleep 0.2' && sleep 0.5; cat out", "hi"),),
         needs=("tmux",), makes="out"),
)  # fmt: skip
TASKS = (*_GIT, *_PYTHON, *_COMPILERS, *_FILES, *_SHELL)
