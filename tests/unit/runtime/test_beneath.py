"""Opening below a folder: no link leads out of it, whatever changes the names meanwhile."""

import errno
import os
import stat

import pytest

from alipes.runtime.beneath import (
    FOLDER,
    NAMED,
    create_file,
    facts_of,
    list_names,
    make_folders,
    open_again,
    open_beneath,
    open_named,
    path_of,
    replace_file,
    temporary_name,
    walk_beneath,
)
from tests.world.exchanger import exchanging

BOTH = pytest.mark.parametrize("open_below", [open_beneath, walk_beneath])


@pytest.fixture
def root(tmp_path):
    """A folder `root` with `d/name`, beside a folder `outside` with another `name`."""
    for folder, text in (("root/d", "inside"), ("outside", "outside")):
        (tmp_path / folder).mkdir(parents=True)
        (tmp_path / folder / "name").write_text(text)
    handle = os.open(tmp_path / "root", FOLDER)
    yield handle
    os.close(handle)


def read(open_below, root, path, **options):
    with open(open_below(root, path, os.O_RDONLY, **options)) as file:
        return file.read()


@BOTH
def test_paths_and_links_below_the_folder_are_opened(root, tmp_path, open_below):
    (tmp_path / "root" / "link").symlink_to("d/../d")
    (tmp_path / "root" / "d" / "up").symlink_to("../d/name")
    for path in ("d/name", "./d//name", "d/../d/name", "link/name", "link/up"):
        assert read(open_below, root, path) == "inside"


@BOTH
@pytest.mark.parametrize("target", ["../outside", "{}/outside", "d/../../outside", "/"])
def test_a_link_that_leads_out_is_refused(root, tmp_path, open_below, target):
    (tmp_path / "root" / "link").symlink_to(target.format(tmp_path))
    for path in ("link", "link/name"):
        with pytest.raises(OSError) as refused:
            open_below(root, path, os.O_RDONLY)
        assert refused.value.errno == errno.EXDEV


@BOTH
@pytest.mark.parametrize("path", ["../outside/name", "d/../../outside/name", "/etc/hostname", ".."])
def test_a_path_that_leads_out_is_refused(root, open_below, path):
    with pytest.raises(OSError) as refused:
        open_below(root, path, os.O_RDONLY)
    assert refused.value.errno == errno.EXDEV


@BOTH
def test_links_can_be_refused_altogether(root, tmp_path, open_below):
    (tmp_path / "root" / "link").symlink_to("d")
    assert read(open_below, root, "d/name", links=False) == "inside"
    with pytest.raises(OSError) as refused:
        open_below(root, "link/name", os.O_RDONLY, links=False)
    assert refused.value.errno == errno.ELOOP


@BOTH
def test_links_in_a_circle_and_missing_files_are_errors(root, tmp_path, open_below):
    (tmp_path / "root" / "one").symlink_to("other")
    (tmp_path / "root" / "other").symlink_to("one")
    for path, code in (("one", errno.ELOOP), ("none", errno.ENOENT), ("d/name/x", errno.ENOTDIR), ("", errno.ENOENT)):
        with pytest.raises(OSError) as refused:
            open_below(root, path, os.O_RDONLY)
        assert refused.value.errno == code
    with pytest.raises(NotADirectoryError):
        open_below(root, "d/name/", os.O_RDONLY)


@BOTH
def test_a_file_is_created_below_the_folder_and_never_through_a_link(root, tmp_path, open_below):
    (tmp_path / "root" / "link").symlink_to(tmp_path / "outside" / "new")
    os.close(open_below(root, "d/new", os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600))
    assert stat.S_IMODE((tmp_path / "root" / "d" / "new").stat().st_mode) == 0o600
    with pytest.raises(OSError):
        open_below(root, "link", os.O_WRONLY | os.O_CREAT)
    with pytest.raises(FileExistsError):
        open_below(root, "link", os.O_WRONLY | os.O_CREAT | os.O_EXCL)
    assert not (tmp_path / "outside" / "new").exists()


@BOTH
def test_a_link_itself_can_be_opened_to_look_at_it(root, tmp_path, open_below):
    (tmp_path / "root" / "link").symlink_to("/etc")
    handle = open_below(root, "link", NAMED | os.O_NOFOLLOW)
    assert stat.S_ISLNK(os.fstat(handle).st_mode)
    os.close(handle)


@BOTH
def test_nothing_outside_is_opened_while_a_folder_and_a_link_are_exchanged(root, tmp_path, open_below):
    (tmp_path / "root" / "link").symlink_to(tmp_path / "outside")
    seen = set[str]()
    with exchanging(tmp_path / "root" / "d", tmp_path / "root" / "link", 0):
        for attempt in range(20_000):
            try:
                seen.add(read(open_below, root, "d/name"))
            except OSError as error:
                seen.add(errno.errorcode[error.errno or 0])
            if attempt > 300 and "inside" in seen and len(seen) > 1:
                break
    assert "inside" in seen
    assert "outside" not in seen


@BOTH
def test_no_descriptor_is_left_open(root, open_below):
    before = len(os.listdir("/proc/self/fd"))
    for path in ("d/name", "d/../d", "none", "../x"):
        try:
            os.close(open_below(root, path, os.O_RDONLY))
        except OSError:
            continue
    assert len(os.listdir("/proc/self/fd")) == before


def test_the_path_of_a_descriptor_follows_it(root, tmp_path):
    handle = open_named(str(tmp_path / "root" / "d" / "name"))
    try:
        (tmp_path / "root" / "d").rename(tmp_path / "root" / "moved")
        assert path_of(handle) == str(tmp_path / "root" / "moved" / "name")
        with open(open_again(handle, os.O_RDONLY)) as file:
            assert file.read() == "inside"
        (tmp_path / "root" / "moved" / "name").unlink()
        with pytest.raises(FileNotFoundError):
            path_of(handle)
    finally:
        os.close(handle)


def test_a_file_called_deleted_has_a_path(tmp_path):
    (tmp_path / "x (deleted)").touch()
    handle = open_named(str(tmp_path / "x (deleted)"))
    assert path_of(handle) == str(tmp_path / "x (deleted)")
    os.close(handle)


def test_links_of_proc_are_not_followed(tmp_path):
    for path in ("/proc/self/root/etc", "/proc/self/cwd"):
        with pytest.raises(OSError):
            open_named(path)


def test_files_are_made_listed_and_replaced_by_the_descriptor_of_their_folder(root, tmp_path):
    folder = make_folders(root, ("a", "b"))
    try:
        (tmp_path / "root" / "a").rename(tmp_path / "root" / "elsewhere")
        for text in ("old", "new"):
            name = temporary_name()
            with open(create_file(folder, name, 0o640), "w") as file:
                file.write(text)
            replace_file(folder, name, "file")
        assert list_names(folder) == ["file"]
        assert (tmp_path / "root" / "elsewhere" / "b" / "file").read_text() == "new"
        facts = facts_of(folder, "file")
        assert facts is not None and stat.S_IMODE(facts.st_mode) == 0o640
        assert facts_of(folder, "none") is None
    finally:
        os.close(folder)


def test_folders_are_not_made_through_a_link(root, tmp_path):
    (tmp_path / "root" / "link").symlink_to(tmp_path / "outside")
    with pytest.raises(OSError):
        make_folders(root, ("link", "new"))
    with pytest.raises(FileExistsError):
        create_file(root, "link")
    assert not (tmp_path / "outside" / "new").exists()
