"""The `search_files` tool on real trees. Every test runs with both engines."""

import asyncio
import os
import random
import time
from pathlib import Path

import msgspec
import pytest

from alipes.agent.tool_calls import validate_args
from alipes.kernel.errors import ToolError
from alipes.tools.boundary import FileBoundary
from alipes.tools.files.patch import Patch
from alipes.tools.files.write_file import WriteFile
from alipes.tools.search.ripgrep import MAX_LINE_CHARS, MAX_PAGE_CHARS
from alipes.tools.search.search_files import SearchFiles
from tests.conftest import require
from tests.world.environment import LIMIT_S
from tests.world.file_tools import RecordingContext

ENV = {"PATH": os.environ["PATH"], "LANG": "C.UTF-8"}


@pytest.fixture(params=["ripgrep", "walker"])
def program(request):
    return require("rg") if request.param == "ripgrep" else ""


@pytest.fixture
def tool(program, places):
    return SearchFiles(ENV, FileBoundary(places), program=program)


@pytest.fixture
def search(tool, call):
    async def search(pattern, **more):
        args = {"pattern": pattern, **more}
        assert not validate_args(tool.spec.schema, args)
        return await tool.run(args, call)

    return search


def write_tree(folder, **files):
    """Create files by name (`__` is a slash, `_dot_` a dot)."""
    for name, text in files.items():
        path = folder / name.replace("__", "/").replace("_dot_", ".")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(text if isinstance(text, bytes) else text.encode())


async def test_lines_are_found_and_grouped_by_file(search, work, call):
    write_tree(work, a_dot_py="import os\nx = 1\nimport re\n", b__c_dot_py="import os\n", d_dot_txt="nothing\n")
    assert await search("^import") == "a.py\n1: import os\n3: import re\n\nb/c.py\n1: import os"
    assert call.shown == ["3 matches in 2 files"]


async def test_output_modes_return_files_or_counts(search, work, call):
    write_tree(work, a="x\nx\ny\n", b="x\n", c="y\n")
    assert await search("x", output_mode="files_only") == "a\nb"
    assert await search("x", output_mode="count") == "a: 2\nb: 1"
    assert call.shown == ["2 files with matches"] * 2


async def test_files_are_found_by_name_or_path(search, work):
    write_tree(work, src__a_dot_py="", src__deep__b_dot_py="", src__c_dot_ts="", tests__a_dot_py="", readme="")
    for pattern, found in (
        ("*.py", ["src/a.py", "src/deep/b.py", "tests/a.py"]),
        ("src/*.py", ["src/a.py"]),
        ("src/**/*.py", ["src/a.py", "src/deep/b.py"]),
        ("**/deep/*", ["src/deep/b.py"]),
        ("*.{ts,py}", ["src/a.py", "src/c.ts", "src/deep/b.py", "tests/a.py"]),
        ("{src,tests}/a.*", ["src/a.py", "tests/a.py"]),
        ("[ab].py", ["src/a.py", "src/deep/b.py", "tests/a.py"]),
        ("[!a].py", ["src/deep/b.py"]),
        ("?.ts", ["src/c.ts"]),
        ("readme", ["readme"]),
        ("./src/a.py", ["src/a.py"]),
        ("!*.py", ["readme", "src/c.ts"]),
        ("*", ["readme", "src/a.py", "src/c.ts", "src/deep/b.py", "tests/a.py"]),
        ("", ["readme", "src/a.py", "src/c.ts", "src/deep/b.py", "tests/a.py"]),
        (f"{work}/src/**/*.py", ["src/a.py", "src/deep/b.py"]),
        (f"{work}/readme", ["readme"]),
    ):
        assert (await search(pattern, target="files")).split("\n") == found, pattern
    assert await search("*.py", target="files", path="src") == "src/a.py\nsrc/deep/b.py"
    assert await search("read", target="files") == "no files found; try *read* (hidden and ignored files are skipped)"


async def test_a_glob_narrows_the_search(search, work):
    write_tree(work, a_dot_py="x", a_dot_txt="x", sub__b_dot_py="x", sub__c_dot_ts="x")
    for glob, found in (
        ("*.py", "a.py\nsub/b.py"),
        ("*.{py,ts}", "a.py\nsub/b.py\nsub/c.ts"),
        ("sub/*.py", "sub/b.py"),
        ("sub/**", "sub/b.py\nsub/c.ts"),
        ("!*.py", "a.txt\nsub/c.ts"),
        ("[a].*", "a.py\na.txt"),
        ("weird[", "no matches (hidden, ignored and binary files are skipped)"),
    ):
        assert await search("x", file_glob=glob, output_mode="files_only") == found, glob
    with pytest.raises(ToolError, match="invalid glob"):
        await search("x", file_glob="[z-a]")


async def test_context_is_shown_around_matches(search, work):
    write_tree(work, f="1\n2\nx\n4\n5\n6\n7\nx\nx\n10\n11\n12\nx\n")
    assert await search("x", context=1) == "f\n2- 2\n3: x\n4- 4\n--\n7- 7\n8: x\n9: x\n10- 10\n--\n12- 12\n13: x"


async def test_page_gives_the_next_offset(search, work, call):
    write_tree(work, **{f"f{n}": "x 1\nx 2\n" for n in range(4)})
    assert (
        await search("x", limit=3) == "f0\n1: x 1\n2: x 2\n\nf1\n1: x 1\n\n[3 matches in 2 files; more with offset=3]"
    )
    assert (
        await search("x", limit=3, offset=3)
        == "f1\n2: x 2\n\nf2\n1: x 1\n2: x 2\n\n[3 matches in 2 files; more with offset=6]"
    )
    assert await search("x", limit=3, offset=6) == "f3\n1: x 1\n2: x 2"
    assert await search("x", limit=3, offset=8) == "no results after offset 8"
    assert await search("*", target="files", limit=2, offset=1) == "f1\nf2\n\n[2 files; more with offset=3]"


async def test_pages_with_context_join_without_gap_or_overlap(search, work):
    write_tree(work, f="".join(f"{'x' if n % 3 == 0 else 'o'} {n}\n" for n in range(1, 22)))
    pages, offset = [], 0
    while "offset=" in (page := await search("^x", context=1, limit=2, offset=offset)):
        pages.append(page)
        offset = int(page.rpartition("offset=")[2].rstrip("]"))
    found = [line for page in [*pages, page] for line in page.split("\n") if ": x" in line]
    assert found == [f"{n}: x {n}" for n in range(3, 22, 3)]
    assert pages[0] == "f\n2- o 2\n3: x 3\n4- o 4\n5- o 5\n6: x 6\n7- o 7\n\n[2 matches in 1 file; more with offset=2]"


async def test_output_is_bounded(search, work):
    write_tree(
        work,
        wide="y" * 5000 + " needle " + "z" * 5000 + "\n",
        many="needle in a line that is not short at all\n" * 5000,
    )
    seen = await search("needle", limit=5000)
    assert len(seen) < 1.5 * MAX_PAGE_CHARS and "more with offset=" in seen
    wide = (await search("needle", path="wide")).split("\n")[1]
    assert len(wide) < MAX_LINE_CHARS + 20 and " needle " in wide and wide.startswith("1: …y") and wide.endswith("z…")
    assert len((await search("^y+", path="wide")).split("\n")[1]) < MAX_LINE_CHARS + 20


async def test_long_lines_are_cut_between_characters(search, work):
    write_tree(work, f="\u65e5\u672c" * 500 + "needle" + "\u65e5\u672c" * 500 + "\n")
    assert "\ufffd" not in (seen := await search("needle")) and "needle" in seen


@pytest.mark.parametrize("inside", [True, False])
async def test_gitignore_applies_inside_a_repository_only(search, work, inside):
    if inside:
        (work / ".git" / "info").mkdir(parents=True)
        write_tree(work, _dot_git__info__exclude="excluded\n", _dot_git__x="x")
    write_tree(
        work,
        _dot_gitignore="# words\n*.log\n!keep.log\nbuild/\n/top\nsub/*.tmp\ndocs/**/gen\nname with \\ \n[z-a]\n",
        a_dot_log="x",
        keep_dot_log="x",
        build__b="x",
        deep__build__b="x",
        top="x",
        deep__top="x",
        sub__a_dot_tmp="x",
        sub__deep__a_dot_tmp="x",
        docs__a__b__gen="x",
        excluded="x",
        nested__a_dot_txt="x",
        nested__b_dot_txt="x",
        nested___dot_gitignore="*.txt\n!b.txt\n",
    )
    found = (await search("x", output_mode="files_only")).split("\n")
    kept = ["deep/top", "keep.log", "nested/b.txt", "sub/deep/a.tmp"]
    assert found == (
        kept
        if inside
        else sorted(
            [*kept, "a.log", "build/b", "deep/build/b", "docs/a/b/gen", "excluded", "nested/a.txt", "sub/a.tmp", "top"]
        )
    )


async def test_ignore_rules_are_inherited_up_to_the_repository_root(search, work):
    (work / "repo" / ".git").mkdir(parents=True)
    (work / ".git").mkdir()
    write_tree(work, _dot_gitignore="*.a\n", repo___dot_gitignore="*.b\n", repo___dot_ignore="*.c\n!d.b\n")
    write_tree(work, **{f"repo__sub__{name}": "x" for name in ("x_dot_a", "x_dot_b", "x_dot_c", "d_dot_b", "y")})
    for start in (".", "repo", "repo/sub"):
        found = await search("x", path=start, output_mode="files_only")
        assert found == "repo/sub/d.b\nrepo/sub/x.a\nrepo/sub/y", start


async def test_ignored_folder_is_searched_when_named(search, work):
    (work / ".git").mkdir()
    write_tree(work, _dot_gitignore="build/\n", build__a="x", _dot_hidden__b="x", _dot_hidden___dot_c="x")
    assert "no matches" in await search("x")
    assert await search("x", path="build") == "build/a\n1: x"
    assert await search("x", path=".hidden") == ".hidden/b\n1: x"
    assert await search("x", path=".hidden/.c") == ".hidden/.c\n1: x"


async def test_hidden_files_are_skipped_for_any_glob(search, work):
    (work / ".git").mkdir()
    write_tree(work, a_dot_py="x", _dot_b_dot_py="x", _dot_c__d_dot_py="x", _dot_gitignore="!.b.py\n!.c\n")
    assert await search("x", output_mode="files_only") == "a.py"
    assert await search("x", file_glob="*.py", output_mode="files_only") == "a.py"
    assert await search("*.py", target="files") == "a.py"


async def test_binary_and_large_files_are_skipped(search, work):
    write_tree(work, text="needle\n", binary=b"needle\n\0\n", late=b"needle\n" + b"x" * 100_000 + b"\n\0needle\n")
    with (work / "large").open("wb") as file:
        file.write(b"needle\n")
        file.truncate(17 << 20)
    assert "text" in (await search("needle", output_mode="files_only")).split("\n")
    assert "large" not in await search("needle", output_mode="files_only")
    assert "binary" not in (await search("needle", output_mode="files_only")).split("\n")


async def test_large_file_is_searched_when_named(search, work):
    with (work / "large.log").open("wb") as file:
        for _ in range(20):
            file.write(b"nothing to see here\n" * 50_000)
        file.write(b"the needle\r\n")
    assert await search("needle$", path="large.log") == "large.log\n1000001: the needle"


async def test_encodings_and_line_endings_do_not_hide_a_match(search, work):
    write_tree(
        work,
        bom=b"\xef\xbb\xbfneedle\n",
        crlf=b"a\r\nneedle\r\n",
        latin=b"caf\xe9 needle\n",
        utf16="\ufeffa\nneedle\n".encode("utf-16-le"),
        utf8="\u65e5\u672c needle\n",
    )
    assert (await search("needle$", output_mode="files_only")).split("\n") == ["bom", "crlf", "latin", "utf16", "utf8"]
    assert (await search("^needle", output_mode="files_only")).split("\n") == ["bom", "crlf", "utf16"]
    assert await search("needle$", path="crlf") == "crlf\n2: needle"
    assert await search("needle", path="latin") == "latin\n1: caf\ufffd needle"
    assert await search("\u65e5\u672c") == "utf8\n1: \u65e5\u672c needle"


async def test_unprintable_names_are_quoted_for_bash(search, work):
    for name in (b"a\nb", b"caf\xe9", b"it's\t", b"-dash", "\u65e5\u672c".encode()):
        Path(os.fsdecode(os.fsencode(work) + b"/" + name)).write_text("x")
    names = ["-dash", "$'a\\x0ab'", "$'caf\\xe9'", "$'it\\x27s\\x09'", "\u65e5\u672c"]
    assert (await search("x", output_mode="files_only")).split("\n") == names
    assert (await search("x", output_mode="count")).split("\n") == [f"{name}: 1" for name in names]
    assert (await search("*", target="files")).split("\n") == names
    assert (await search("x")).split("\n")[::3] == names
    assert await search("x", path="-dash") == "-dash\n1: x"


async def test_links_are_followed_only_at_the_start(search, work, tmp_path):
    (tmp_path / "outside").mkdir()
    write_tree(tmp_path / "outside", f="x")
    (work / "link").symlink_to(tmp_path / "outside")
    (work / "file").symlink_to(tmp_path / "outside" / "f")
    (work / "loop").symlink_to(".")
    write_tree(work, g="x")
    assert await search("x", output_mode="files_only") == "g"
    assert await search("x", path="link") == "link/f\n1: x"
    assert await search("x", path="file") == "file\n1: x"
    assert await search("x", path="../outside") == f"{tmp_path}/outside/f\n1: x"


async def test_pipes_and_devices_are_skipped(search, work):
    os.mkfifo(work / "pipe")
    write_tree(work, f="x")
    assert await search("x") == "f\n1: x"
    for path in ("pipe", "/dev/zero"):
        with pytest.raises(ToolError, match="only files and directories can be searched"):
            await search("x", path=path)
    with pytest.raises(
        ToolError, match=r"/g does not exist. Did you mean f or pipe\?|/g does not exist. Did you mean f"
    ):
        await search("x", path="g")
    with pytest.raises(ToolError, match="null byte"):
        await search("x", path="nul\0")


async def test_secrets_are_not_found(search, work, tmp_path, places):
    home = tmp_path / "home"
    write_tree(home, _dot_ssh__id_rsa="canary", _dot_ssh__config="canary", _dot_alipes__alipes_dot_db="canary")
    write_tree(
        home, _dot_alipes__run__x="canary", _dot_alipes___dot_env="canary", _dot_alipes__config_dot_toml="canary"
    )
    os.link(home / ".alipes" / ".env", work / "hard")
    assert "no matches" in await search("canary")
    assert await search("canary", path="~/.alipes", output_mode="files_only") == f"{home}/.alipes/config.toml"
    assert await search("canary", path="~/.ssh", output_mode="count") == f"{home}/.ssh/config: 1"
    (work / "link").symlink_to(home / ".alipes" / ".env")
    for path in ("~/.alipes/.env", "~/.ssh/id_rsa", "link", "hard", "~/.alipes/run/x"):
        with pytest.raises(ToolError, match="holds secrets and is not searched"):
            await search("canary", path=path)


@pytest.mark.parametrize(
    ("pattern", "why"),
    [
        ("(open", "invalid regular expression "),
        ("a{2,1}", "invalid regular expression "),
        ("[z-a]", "invalid regular expression "),
        ("*", "invalid regular expression "),
        ("a\\nb", "line break"),
        ("a\nb", "line break"),
        ("", "empty"),
    ],
)
async def test_invalid_pattern_is_explained(search, work, pattern, why):
    write_tree(work, f="x")
    for mode in ("content", "files_only", "count"):
        with pytest.raises(ToolError, match=why) as caught:
            await search(pattern, output_mode=mode)
        assert "\n" not in str(caught.value).replace(pattern, "")


async def test_lookaround_patterns_work(search, work):
    write_tree(work, f="foobar\nfoobaz\nFOO\n--flag\n\\n literal\n")
    assert await search("foo(?!bar)") == "f\n2: foobaz"
    assert await search("(?i)^foo$") == "f\n3: FOO"
    assert await search("--flag") == "f\n4: --flag"
    assert await search(r"\\n lit") == "f\n5: \\n literal"
    assert await search(r"\bfoo(bar|baz)\b", output_mode="count") == "f: 2"


@pytest.mark.skipif(os.getuid() == 0, reason="root may read everything")
async def test_unreadable_files_are_mentioned(search, work):
    write_tree(work, a="x", b="x", closed__c="x")
    (work / "b").chmod(0)
    (work / "closed").chmod(0)
    try:
        assert await search("x") == "a\n1: x\n[some files could not be read]"
    finally:
        (work / "closed").chmod(0o700)


async def test_secrets_are_masked_in_results(program, places, work, call):
    write_tree(work, f="key = sk-1\n")
    tool = SearchFiles(ENV, FileBoundary(places), program=program, mask=lambda text: text.replace("sk-1", "***"))
    assert await tool.run({"pattern": "key"}, call) == "f\n1: key = ***"


async def test_a_stop_ends_the_engine_at_once(search, tool, work):
    """Cancelled in the middle of a search, no process is left."""
    fifo = work / "log"
    os.mkfifo(fifo)
    write_tree(work, **{f"d{n}__f": "x y z\n" * 2000 for n in range(300)})
    before = children()
    task = asyncio.create_task(search("nothing like it", output_mode="count"))
    while not children() - before and not task.done():
        await asyncio.sleep(0)
    began = time.monotonic()
    task.cancel()
    await asyncio.wait([task])
    assert time.monotonic() - began < LIMIT_S
    assert children() <= before


async def test_catastrophic_pattern_does_not_block_the_loop(places, work, call):
    """The walker is a process: the loop keeps running, and a stop kills it."""
    write_tree(work, f="a" * 64 + "!\n")
    before = children()
    tool = SearchFiles(ENV, FileBoundary(places), program="")
    task = asyncio.create_task(tool.run({"pattern": "(a+)+$"}, call))
    ticks = 0
    while ticks < 50:
        await asyncio.sleep(0.01)
        ticks += 1
        assert not task.done()
    task.cancel()
    await asyncio.wait([task])
    assert children() <= before


async def test_timed_out_search_returns_partial_results(places, work, call):
    write_tree(work, a="aaa\n", f="a" * 64 + "!\n")
    seen = await SearchFiles(ENV, FileBoundary(places), program="", seconds=1).run({"pattern": "(a+)+$"}, call)
    assert seen == "a\n1: aaa\n[stopped after 1 s; narrow path or file_glob]"


@pytest.mark.parametrize("script", ["echo nonsense; exit 127", "echo 'unrecognized flag' >&2; exit 2", "kill -9 $$"])
async def test_broken_ripgrep_falls_back_to_the_walker(places, work, call, tmp_path, script):
    fake = tmp_path / "rg"
    fake.write_text(f"#!/bin/sh\n{script}\n")
    fake.chmod(0o755)
    write_tree(work, f="x")
    assert await SearchFiles(ENV, FileBoundary(places), program=str(fake)).run({"pattern": "x"}, call) == "f\n1: x"
    assert await SearchFiles(ENV, FileBoundary(places), program="/no/such/rg").run({"pattern": "x"}, call) == "f\n1: x"


async def test_ripgrep_is_found_in_the_path_of_the_environment(places, work, call, tmp_path):
    write_tree(work, f="x")
    (tmp_path / "bin").mkdir()
    for env in ({"PATH": str(tmp_path / "bin")}, ENV):
        assert await SearchFiles(env, FileBoundary(places)).run({"pattern": "x"}, call) == "f\n1: x"


@pytest.mark.deadline(60)
@pytest.mark.parametrize("seed", range(4))
async def test_both_engines_see_the_same_files_under_random_rules(places, tmp_path, seed):
    """Random trees with random ignore rules."""
    rg, rng = require("rg"), random.Random(seed)
    for n in range(10):
        (root := tmp_path / f"tree{n}").mkdir()
        (root / ".git").mkdir()
        random_tree(root, rng, 0)
        for args in ({"pattern": "x", "output_mode": "files_only"}, {"pattern": "*a*", "target": "files"}):
            ours, theirs = [
                await SearchFiles(ENV, FileBoundary(places), program=program).run(
                    {**args, "limit": 500}, RecordingContext(root)
                )
                for program in ("", rg)
            ]
            assert ours == theirs


NAMES = ("a", "b", "build", "x.log", "keep.log", "a b", "docs", "gen", ".hid", "foo.txt", "[x]", "a{b}")
RULES = (
    *("a", "/a", "a/", "*.log", "!keep.log", "build/", "**/gen", "docs/**", "docs/**/gen", "/docs/*", "!docs/a"),
    *("*", "!*/", "!a", "?", "[ab]", "[!a]", "\\a", "a b ", "foo.*", "/b/*/a", "b/**/a", "**", "**/", "/**", "!/b"),
    *("a/**/", "*.t*t", "**a", "b**", "a//b", "./a", "\\[x\\]", "[[]x]", "#c", "", "/", "*/a", "*/*/a", "!.hid"),
)


def random_tree(folder, rng, depth):
    for name in rng.sample(NAMES, rng.randint(1, 5)):
        if depth < 3 and rng.random() < 0.5:
            (folder / name).mkdir()
            random_tree(folder / name, rng, depth + 1)
        else:
            (folder / name).write_text("x")
    if not depth or rng.random() < 0.25:
        rules = "\n".join(rng.sample(RULES, rng.randint(1, 4)))
        (folder / rng.choice([".gitignore", ".gitignore", ".ignore"])).write_text(rules + "\n")


def test_the_schemas_of_the_file_tools_are_small():
    """They are part of every request."""
    specs = [tool.spec for tool in (WriteFile, Patch, SearchFiles)]
    wired = [{"type": "function", "name": s.name, "description": s.description, "parameters": s.schema} for s in specs]
    assert sum(len(msgspec.json.encode(each)) for each in wired) <= 1_700


def children():
    lists = [path.read_text() for path in Path("/proc/self/task").glob("*/children")]
    return {int(pid) for listed in lists for pid in listed.split()}
