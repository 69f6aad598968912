"""Write store/postgres/functions.sql: the current functions of PostgreSQL, from the migrations.

python tools/postgres_functions.py
"""

import re
from pathlib import Path

FOLDER = Path(__file__).parents[1] / "src" / "alipes" / "store" / "postgres"
PAGE = FOLDER / "functions.sql"
HEAD = """\
-- The current functions of PostgreSQL, derived from `migrations/` by `tools/postgres_functions.py` (`make docs`).
-- To read only: nothing executes this file. A change is a new migration, so that a new worker never changes a function
-- under an older one.
"""
STATEMENT = re.compile(
    r"""^(?P<create>(?:--[^\n]*\n)*CREATE\ (?:OR\ REPLACE\ )?FUNCTION\ (?P<name>\w+)\s*\(
        (?:[^;$]|\$(?!\w*\$))*(?P<tag>\$\w*\$).*?(?P=tag)[^;]*;)
    | ^DROP\ FUNCTION\ (?:IF\ EXISTS\ )?(?P<dropped>[\w\s,]+)[^;]*;""",
    re.MULTILINE | re.DOTALL | re.VERBOSE,
)


def assemble(migrations: list[tuple[str, str]]) -> str:
    """The text of the page. `migrations`: names of files and their SQL, in order."""
    functions: dict[str, tuple[str, str]] = {}
    for file, sql in migrations:
        for found in STATEMENT.finditer(sql):
            for name in (found["name"] or found["dropped"]).replace(",", " ").split():
                functions.pop(name, None)  # what is replaced moves to its last migration
            if found["name"]:
                functions[found["name"]] = (file, found["create"])
    parts = [HEAD]
    last = ""
    for file, text in functions.values():
        parts += [f"-- migrations/{file}\n"] if file != last else []
        parts.append(f"{text}\n")
        last = file
    return "\n".join(parts)


def read_migrations() -> list[tuple[str, str]]:
    return [(path.name, path.read_text()) for path in sorted((FOLDER / "migrations").glob("*.sql"))]


if __name__ == "__main__":
    PAGE.write_text(assemble(read_migrations()))
