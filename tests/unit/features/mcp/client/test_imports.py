"""Without configured servers nothing of MCP is imported: it would cost every start."""

import subprocess
import sys

CODE = """
import sys
import alipes.cli.ask
print([name for name in sys.modules if name.partition(".")[0] in ("mcp", "mcp_types") or "alipes.features.mcp.client" in name])
"""


def test_a_start_does_not_import_the_mcp_client():
    done = subprocess.run([sys.executable, "-c", CODE], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"
