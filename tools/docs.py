"""Renew all that is derived: tables, `--help` pages, the index of files, the Slack manifest, CHANGELOG.md, the SQL
functions of PostgreSQL.

python tools/docs.py
"""

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]
MODULES = (
    "tests.architecture.test_docs_config",
    "tests.architecture.test_docs_cli",
    "tests.architecture.test_docs_slack",
    "tests.architecture.test_docs_commands",
    "tests.architecture.test_docs_keys",
    "tests.architecture.test_docs_pages",
    "tests.architecture.test_docs_files",
    "tests.contract.test_docs_plugins",
)


def main() -> int:
    failed = 0
    for module in MODULES:
        failed |= subprocess.run([sys.executable, "-m", module], cwd=ROOT, check=False).returncode
    for tool in ("changelog", "postgres_functions"):
        failed |= subprocess.run([sys.executable, f"tools/{tool}.py"], cwd=ROOT, check=False).returncode
    return failed


if __name__ == "__main__":
    sys.exit(main())
