"""File tools act at what was judged, whatever a hostile process does with the names meanwhile."""

import os
import sys

import pytest
from msgspec import structs

from alipes.agent.approval.approval import ApprovalGate
from alipes.agent.approval.files import FileApproval, find_cover
from alipes.config.settings import DocumentsConfig
from alipes.kernel.errors import ToolError
from alipes.kernel.messages import ToolCall
from alipes.kernel.turns import Address, Inbound, Turn
from alipes.runtime.http.clients import ClientScope
from alipes.runtime.http.public_fetch import PublicFetcher
from alipes.runtime.sandbox.backend import CommandScope
from alipes.runtime.sandbox.policy import SandboxPolicy
from alipes.tools.boundary import FileBoundary, OpenedPath
from alipes.tools.common import Places
from alipes.tools.documents.documents import DocumentConverter
from alipes.tools.files.patch import Patch
from alipes.tools.files.read_file import ReadFile
from alipes.tools.files.write_file import WriteFile
from alipes.tools.images import ImageLoader, VisionAnalyze
from alipes.tools.search.search_files import SearchFiles
from alipes.tools.send_file import SendFileTool
from tests.world.exchanger import exchanging
from tests.world.pictures import PNG

ENV = {"PATH": os.environ.get("PATH", os.defpath)}


class World:
    """A project with a folder `d`, and a link `link` that leads to a home with files of the same names."""

    def __init__(self, root):
        self.home, self.work = root / "home", root / "work"
        for folder in (self.home / ".ssh", self.home / ".alipes", self.work / "d"):
            folder.mkdir(parents=True)
        for name in (".bashrc", "id_rsa", "plain"):
            (self.work / "d" / name).write_text(f"inside {name}\n")
            (self.home / name).write_text(f"outside {name} canary\n")
        (self.work / "link").symlink_to(self.home)
        self.places = Places(home=str(self.home), alipes_home=str(self.home / ".alipes"), scratch=())
        self.boundary = FileBoundary(self.places)
        self.turn = Turn("t", "s", Inbound("1", Address("terminal", "x"), "x", "go", workdir=str(self.work)))
        self.call_id, self.session, self.workdir = "c", "s", str(self.work)
        self.shown = ""
        self.asked = list[str]()
        self.answers = list[str]()

    async def progress(self, text):
        self.shown += text

    async def _ask(self, call, risk, turn, *more):
        self.asked.append(risk.reason)
        return self.answers.pop(0) if self.answers else "no"

    async def run(self, tool, **args):
        """What a turn does with a call: judge it, run it, end it. The result, or why there is none."""
        call = ToolCall("c", tool.spec.name, args)
        verdict = await ApprovalGate(self.boundary, self._ask).before_tool(call, self.turn)
        try:
            if verdict is not None:
                return verdict.reason
            done = await tool.run(args, self)
            return done if isinstance(done, str) else done.text
        except ToolError as error:
            return str(error)
        finally:
            await FileApproval(self.boundary).after_tool(call, self.turn)

    def outside(self):
        return {path.name: path.read_text() for path in self.home.iterdir() if path.is_file()}


@pytest.fixture
def world(tmp_path):
    return World(tmp_path)


async def try_often(world, act, times=150):
    """Let `act` run while the folder and the link are exchanged; everything it returned or showed."""
    seen = list[str]()
    with exchanging(world.work / "d", world.work / "link", 0.002):
        for _ in range(times):
            seen.append(await act())
    return "\n".join(seen) + world.shown


@pytest.mark.parametrize("name", [".bashrc", "plain"])
async def test_nothing_is_written_outside_while_a_folder_and_a_link_are_exchanged(world, name):
    before = world.outside()
    tool = WriteFile(world.boundary)
    said = await try_often(world, lambda: world.run(tool, path=f"d/{name}", content="evil"))
    assert world.outside() == before
    assert f"updated d/{name}" in said or f"unchanged d/{name}" in said  # inside it was written


async def test_a_patch_changes_moves_and_deletes_nothing_outside(world):
    before = world.outside()
    tool = Patch(world.boundary)
    patch = (
        "*** Begin Patch\n*** Update File: d/plain\n-{} plain{}\n+evil\n*** Update File: d/id_rsa\n*** Move to: d/x\n"
    )
    texts = [patch.format("inside", ""), patch.format("outside", " canary")]
    for text in texts:
        text += "*** Delete File: d/.bashrc\n*** Add File: d/new/file\n+x\n*** End Patch"
        said = await try_often(world, lambda text=text: world.run(tool, mode="patch", patch=text), 75)
        assert "canary" not in said.replace(text, "")
    assert world.outside() == before
    assert not (world.home / "new").exists()


async def test_a_secret_is_not_read_by_a_name_that_was_judged_as_another_file(world):
    (world.work / "link").unlink()
    (world.work / "link").symlink_to(world.home / ".ssh")
    (world.home / ".ssh" / "id_rsa").write_text("canary")
    (world.home / ".ssh" / "more").write_text("canary")
    tool = ReadFile(world.boundary)
    said = await try_often(world, lambda: world.run(tool, path="d/plain"))
    said += await try_often(world, lambda: world.run(tool, path="d/id_rsa"))
    said += await try_often(world, lambda: world.run(tool, path="d/missing"))
    assert "inside" in said and "canary" not in said


@pytest.mark.parametrize("program", [None, ""], ids=["ripgrep", "walker"])
@pytest.mark.parametrize("mode", ["content", "files_only", "count"])
async def test_a_search_shows_nothing_from_outside(world, program, mode):
    for number in range(40):  # time between listing a folder and opening what is in it
        (world.work / f"a{number}").mkdir()
    tool = SearchFiles(ENV, world.boundary, program=program)
    times = 40 if program is None else 10
    said = await try_often(world, lambda: world.run(tool, pattern="canary", output_mode=mode, path="."), times)
    assert "plain" not in said and "id_rsa" not in said


async def test_a_search_of_names_shows_no_names_from_outside(world):
    (world.home / "only-outside").touch()
    tool = SearchFiles(ENV, world.boundary)
    said = await try_often(world, lambda: world.run(tool, pattern="*", target="files", path="."), 40)
    assert "plain" in said and "only-outside" not in said


async def test_an_image_is_loaded_from_the_file_that_was_judged(world):
    for folder, text in ((world.work / "d", b"inside"), (world.home, b"canary")):
        (folder / "x.png").write_bytes(PNG + text)

    async with ClientScope() as scope:
        world.boundary = FileBoundary(world.places, lambda scope: (policy_of(world), True))
        loader = ImageLoader(world.boundary, PublicFetcher(scope, ()))

        async def look(prompt, image):
            return image.data.decode(errors="replace") if image is not None else ""

        tool = VisionAnalyze(loader.load, look)
        said = await try_often(world, lambda: world.run(tool, path="d/x.png", question="?"))
    assert "canary" not in said and "outside of the project" in said


async def test_a_file_is_sent_as_it_was_judged(world, tmp_path):
    world.boundary = FileBoundary(world.places, lambda scope: (policy_of(world), True))
    tool = SendFileTool(world.boundary, tmp_path / "outgoing")
    said = await try_often(world, lambda: world.run(tool, path="d/plain"))
    sent = {path.read_text() for path in (tmp_path / "outgoing").rglob("*") if path.is_file()}
    assert sent == {"inside plain\n"} and "Attached" in said and "outside of the project" in said


async def test_a_document_is_converted_as_it_was_judged(world):
    for folder, text in ((world.work / "d", "inside"), (world.home, "canary")):
        (folder / "page.html").write_text(f"<h1>{text}</h1>")
    world.boundary = FileBoundary(world.places, lambda scope: (policy_of(world), True))
    tool = ReadFile(world.boundary, documents=DocumentConverter(DocumentsConfig()))
    said = await try_often(world, lambda: world.run(tool, path="d/page.html"), 60)
    assert "inside" in said and "canary" not in said


async def test_an_approved_write_goes_to_the_file_that_was_asked_about(world):
    (world.work / "d").rename(world.work / "real")
    (world.work / "d").symlink_to(world.home)
    world.answers = ["once"]
    assert "updated d/.bashrc" in await world.run(WriteFile(world.boundary), path="d/.bashrc", content="mine")
    assert (world.home / ".bashrc").read_text() == "mine" and len(world.asked) == 1


async def test_a_question_is_withdrawn_if_the_path_leads_elsewhere_after_the_answer(world):
    before = world.outside()
    (world.work / "d").rename(world.work / "real")
    (world.work / "d").symlink_to(world.home / ".ssh")

    async def ask(call, risk, turn, *more):
        (world.work / "d").unlink()
        (world.work / "d").symlink_to(world.home)
        return "once"

    call = ToolCall("c", "write_file", {"path": "d/authorized_keys", "content": "x"})
    verdict = await ApprovalGate(world.boundary, ask).before_tool(call, world.turn)
    assert verdict.ruling == "deny" and "so the question was withdrawn" in verdict.reason
    assert world.outside() == before and not (world.home / ".ssh" / "authorized_keys").exists()
    world.boundary.release("s")


async def test_the_descriptors_of_a_call_are_closed_when_it_ends(world):
    before = len(os.listdir("/proc/self/fd"))
    await world.run(ReadFile(world.boundary), path="d/plain")
    await world.run(WriteFile(world.boundary), path="new/folder/file", content="x")
    world.boundary.hold(("s", "stopped"), "d/plain", world.workdir)
    await FileApproval(world.boundary).turn_ended(world.turn)
    assert len(os.listdir("/proc/self/fd")) == before


def test_a_path_is_opened_with_its_links_and_missing_folders(tmp_path):
    (tmp_path / "a" / "b").mkdir(parents=True)
    (tmp_path / "a" / "b" / "file").write_text("x")
    (tmp_path / "link").symlink_to("a/b")
    (tmp_path / "to-file").symlink_to("link/../b/file")
    (tmp_path / "dangling").symlink_to("none/file")
    expected = {
        "link/file": ("a/b/file", ()),
        "to-file": ("a/b/file", ()),
        "link": ("a/b", ()),
        "link/.": ("a/b", ()),
        "link/..": ("a", ()),
        "link/x/y/z": ("a/b/x/y/z", ("x", "y")),
        "dangling": ("none/file", ("none",)),
    }
    for path, (real, missing) in expected.items():
        with OpenedPath(str(tmp_path / path)) as opened:
            assert (opened.real, opened.missing) == (str(tmp_path / real), missing), path
            assert (opened.facts is not None) == (tmp_path / path).exists()
    for path in ("link/none/../file", "a/b/file/x"):
        with pytest.raises(OSError):
            OpenedPath(str(tmp_path / path))


@pytest.mark.parametrize(
    "name", ["notes.txt", ".config/qtile/config.py", "Desktop/x.desktop", "other/app.py", ".cpan/CPAN/MyConfig.pm"]
)
async def test_a_new_file_outside_of_the_project_is_asked_about(world, name):
    path = str(world.home / name)
    said = await world.run(WriteFile(world.boundary), path=f"~/{name}", content="x")
    assert "denied by the user" in said and not (world.home / name).exists()
    assert world.asked == [f"writes ~/{name}, which is outside of the project and not in sandbox.write"]
    world.answers = ["once"]
    assert f"created {path}" in await world.run(WriteFile(world.boundary), path=path, content="x")


async def test_nothing_in_the_project_or_the_scratch_folder_is_asked_about(tmp_path):
    world = World(tmp_path)
    world.boundary = FileBoundary(structs.replace(world.places, scratch=(str(tmp_path / "scratch"),)))
    for path in ("new.py", "d/new/deep.py", str(tmp_path / "scratch" / "x")):
        assert "created" in await world.run(WriteFile(world.boundary), path=path, content="x")
    await world.run(ReadFile(world.boundary), path="~/plain")  # commands see it as well: there is no sandbox
    assert not world.asked


async def test_where_nobody_can_answer_a_write_outside_is_refused_with_what_to_set(world):
    call = ToolCall("c", "write_file", {"path": "~/notes.txt", "content": "x"})
    verdict = await ApprovalGate(world.boundary).before_tool(call, world.turn)
    assert verdict.ruling == "deny" and "outside of the project and not in sandbox.write" in verdict.reason
    assert "list the folder there, or run again with --yes" in verdict.reason
    world.boundary.release("s")


async def test_where_nobody_can_answer_what_commands_do_not_see_is_not_read(world):
    world.boundary = FileBoundary(world.places, lambda scope: (policy_of(world), True))
    verdict = await ApprovalGate(world.boundary).before_tool(
        ToolCall("c", "read_file", {"path": "~/plain"}), world.turn
    )
    assert verdict.ruling == "deny" and "outside of the project and not in sandbox.read" in verdict.reason
    assert "list the folder there, or run again with --yes" in verdict.reason
    world.boundary.release("s")


def policy_of(world, **more):
    work, empty = str(world.work), str(world.home / "empty")
    return SandboxPolicy(work, str(world.home), "", str(world.work / "scratch"), empty, (work,), **more)


async def test_a_file_that_commands_do_not_see_is_asked_about_once_and_then_both_see_it(world):
    for name in ("README.md", "src/app.py", "LICENSE"):
        path = world.home / "p2" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("text")
    (world.home / "p2" / ".git").mkdir()
    world.boundary = FileBoundary(world.places, lambda scope: (policy_of(world), True))
    world.answers = ["once", "session"]
    scope = CommandScope("s", str(world.work))
    reading = ReadFile(world.boundary)
    assert await world.run(reading, path="~/p2/README.md") == "text"
    assert world.boundary.granted(scope) == ((), ())
    for name in ("README.md", "src/app.py", "LICENSE"):
        assert await world.run(reading, path=f"~/p2/{name}") == "text"
    assert world.asked == 2 * ["reads ~/p2/README.md, which is outside of the project and not in sandbox.read"]
    assert world.boundary.granted(scope) == ((str(world.home / "p2"),), ())
    assert world.boundary.granted(CommandScope("other", str(world.work))) == ((), ())
    said = await world.run(WriteFile(world.boundary), path="~/p2/new", content="x")
    assert "denied" in said and len(world.asked) == 3  # to read is not to write
    said = await world.run(SearchFiles(ENV, world.boundary), pattern="x", path="~/p3")
    assert "outside of the project" in said


async def test_what_commands_see_is_read_without_asking(world):
    (world.home / "lib").mkdir()
    (world.home / "lib" / "a.py").write_text("x")
    policy = policy_of(world, readable=(str(world.home / "lib"),))
    world.boundary = FileBoundary(world.places, lambda scope: (policy, True))
    for path in ("~/lib/a.py", "d/plain", "/etc/hostname", "/proc/self/status", "/proc/meminfo", "~/.alipes/x"):
        await world.run(ReadFile(world.boundary), path=path)
    assert not world.asked
    await world.run(ReadFile(world.boundary), path="~/.ssh/id_rsa")
    assert "which holds secrets" in world.asked[0]


@pytest.mark.skipif(sys.platform != "linux", reason="it is about Linux")
async def test_memory_and_processes_of_other_programs_are_asked_about(world):
    world.boundary = FileBoundary(world.places, lambda scope: (policy_of(world), True))
    for tool, name in ((ReadFile(world.boundary), "maps"), (SearchFiles(ENV, world.boundary), "")):
        for path in ("/dev/shm/x", f"/proc/{os.getppid()}/{name}"):
            assert "outside of the project" in await world.run(tool, path=path, pattern="x")
    assert "outside of the project" in await world.run(SearchFiles(ENV, world.boundary), path="/proc", pattern="x")


def test_a_right_never_covers_the_home_or_settings_in_it(tmp_path):
    home = str(tmp_path / "home")
    (tmp_path / "home" / "p2" / ".git").mkdir(parents=True)
    expected = {"p2/a/b/c.py": "p2", "docs/a.txt": "docs", "a.txt": "a.txt", ".config/x/y": ".config/x/y"}
    for path, cover in expected.items():
        assert find_cover(f"{home}/{path}", home) == f"{home}/{cover}"
    assert find_cover("/srv/a.txt", home) == "/srv/a.txt"
