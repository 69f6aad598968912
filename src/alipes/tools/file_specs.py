"""What the model sees of the file tools, which are imported with their first call."""

from alipes.kernel.ports import ToolSpec
from alipes.tools.common import make_schema

READ_FILE = ToolSpec(
    name="read_file",
    description="Read a text file or document (pdf, office, epub, zip, tar), view an image or list a directory.",
    schema=make_schema(
        "path", path="string", offset="integer: line; negative: from the end", limit="integer: default 2000"
    ),
    effect="read",
)
WRITE_FILE = ToolSpec(
    name="write_file",
    description="Create or overwrite a text file, with its directories.",
    schema=make_schema("path content", path="string", content="string"),
)
PATCH = ToolSpec(
    name="patch",
    description="Edit text files. replace: old_string, unique in path, becomes new_string. patch: a unified diff"
    " or `*** Begin Patch` for several files, all or nothing.",
    schema=make_schema(
        "mode",
        mode=["replace", "patch"],
        path="string",
        old_string="string",
        new_string="string",
        replace_all="boolean",
        patch="string",
    ),
)
SEARCH_FILES = ToolSpec(
    name="search_files",
    description="Search file contents by regex, or file names by glob (target=files). Skips hidden, git-ignored "
    "and binary files.",
    schema=make_schema(
        "pattern",
        pattern="string",
        target=["content", "files"],
        path="string",
        file_glob="string: *.py",
        limit="integer",
        offset="integer",
        output_mode=["content", "files_only", "count"],
        context="integer: lines",
    ),
    effect="read",
)
