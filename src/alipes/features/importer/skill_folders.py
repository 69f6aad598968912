"""Skills in the home of another program, and prompts, which become skills."""

from collections.abc import Iterator, Sequence

from alipes.features.importer.formats import SourceError, content_hash
from alipes.features.importer.records import FoundFile, LeftOut, RecordSource, SkillFolder
from alipes.features.importer.source_home import SourceHome

_SCRIPTS = (".sh", ".bash", ".zsh", ".py", ".js", ".mjs", ".cjs", ".ts", ".rb", ".pl", ".ps1", ".bat", ".cmd", ".exe")
_PROMPT = ".md"
_NO_FRONT = "It has no front matter: begin it with `---`, a line `description: ...` and `---`, and import again."


def read_skills(home: SourceHome, folder: str, skipped: Sequence[str] = ()) -> Iterator[SkillFolder | LeftOut]:
    """The skills in a folder: folders with a SKILL.md, or folders of a category with such folders."""
    for name in home.list_names(folder):
        if name.startswith(".") or name in skipped:
            continue
        if home.has(f"{folder}/{name}/SKILL.md"):
            yield _read_skill(home, f"{folder}/{name}", name)
            continue
        for inner in home.list_names(f"{folder}/{name}"):
            if home.has(f"{folder}/{name}/{inner}/SKILL.md"):
                yield _read_skill(home, f"{folder}/{name}/{inner}", inner, category=name)


def _read_skill(home: SourceHome, path: str, name: str, category: str = "") -> SkillFolder | LeftOut:
    source = RecordSource(path, "/".join(filter(None, (category, name))), "")
    try:
        files = home.list_files(path)
    except SourceError as error:
        return LeftOut(source=source, kind="skills", what=f"skill {name}", why=f"{error}.")
    return make_skill(path, name, files, category)


def make_skill(path: str, name: str, files: Sequence[FoundFile], category: str = "") -> SkillFolder:
    digest = content_hash(*[part for file in files for part in (file.name, file.hash, file.executable)])
    source = RecordSource(path, "/".join(filter(None, (category, name))), digest)
    scripts = tuple(file.name for file in files if file.executable or file.name.lower().endswith(_SCRIPTS))
    return SkillFolder(source=source, name=name, files=tuple(files), category=category, scripts=scripts)


def read_prompts(home: SourceHome, folder: str) -> Iterator[SkillFolder | LeftOut]:
    """Prompts, one Markdown file each, also in folders of a group: `git/commit.md` becomes `git-commit`."""
    for name in home.list_names(folder):
        inner = [] if name.endswith(_PROMPT) else home.list_names(f"{folder}/{name}")
        for path in (name, *(f"{name}/{each}" for each in inner)):
            if path.endswith(_PROMPT):
                yield _read_prompt(home, f"{folder}/{path}", path.removesuffix(_PROMPT).replace("/", "-").lower())


def _read_prompt(home: SourceHome, path: str, name: str) -> SkillFolder | LeftOut:
    source = RecordSource(path, name, "")
    try:
        data = home.read_bytes(path)
    except SourceError as error:
        return LeftOut(source=source, kind="skills", what=f"prompt {name}", why=f"{error}.")
    if not data.lstrip().startswith(b"---"):
        return LeftOut(source=source, kind="skills", what=f"prompt {name}", why=_NO_FRONT)
    return make_skill(path, name, [FoundFile("SKILL.md", path, content_hash(data))])
