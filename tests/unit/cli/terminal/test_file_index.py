"""The index of files for completion."""

from alipes.cli.terminal.input.file_index import FRESH_S, FileIndex, list_tree


def make(folder, *names):
    for name in names:
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()


def test_ignored_folders_and_secrets_are_not_listed(tmp_path):
    make(tmp_path, ".git/HEAD", "build/out.o", "src/a.py", "src/a.log", "node_modules/x/y.js", ".env", ".github/ci.yml")
    (tmp_path / ".gitignore").write_text("build/\n*.log\n")
    assert list_tree(str(tmp_path)) == [".github/", "src/", ".gitignore", ".github/ci.yml", "src/a.py"]


def test_an_ignore_file_of_a_subfolder_applies_there(tmp_path):
    make(tmp_path, ".git/HEAD", "a/x.tmp", "b/x.tmp")
    (tmp_path / "a" / ".gitignore").write_text("*.tmp\n")
    assert [path for path in list_tree(str(tmp_path)) if path.endswith(".tmp")] == ["b/x.tmp"]


def test_links_to_folders_are_not_followed(tmp_path):
    make(tmp_path, "a/b.txt")
    (tmp_path / "a" / "loop").symlink_to(tmp_path)
    assert list_tree(str(tmp_path)) == ["a/", "a/b.txt", "a/loop"]


async def test_a_listing_is_used_again_until_it_is_old(tmp_path):
    make(tmp_path, "one.txt")
    now = [100.0]
    index = FileIndex(str(tmp_path), clock=lambda: now[0])
    assert await index.search("txt") == ["one.txt"]
    make(tmp_path, "two.txt")
    assert await index.search("txt") == ["one.txt"]
    now[0] += FRESH_S
    assert await index.search("txt") == ["one.txt", "two.txt"]
    assert await index.search("two") == ["two.txt"]


async def test_a_missing_folder_is_empty(tmp_path):
    assert await FileIndex(str(tmp_path / "gone")).search("x") == []
