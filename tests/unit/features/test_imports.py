"""What a question imports of the features: no more than it uses, since each module costs every start."""

import json
import subprocess
import sys
from collections import defaultdict

from alipes.features.all import FEATURES
from tests.world.environment import environment

CODE = """
import json, sys
from alipes.cli.main import main
main(["ask", "hi"])
print(json.dumps([name for name in sys.modules if name.startswith("alipes.features.")]))
"""
NOT_ASKED = {"endpoints", "serve", "doctor", "commands", "cli"}
"""Parts for a server, for slash commands and for commands of the shell."""
UNUSED = {
    "browser": {"feature", "hooks", "settings", "specs", "tool"},
    "checkpoints": {"feature", "hooks", "settings"},
    "learning": {"feature", "hooks", "settings"},
    "mcp": {"changes", "feature", "files", "hooks", "settings"},
    "openai": {"feature"},
    "schedules": {"feature", "hooks", "settings", "tool"},
    "usage": {"feature"},
    "webhooks": {"feature"},
}
"""Features that a question does not use, and what it imports of them."""


def test_a_question_imports_the_parts_that_it_uses(tmp_path):
    (tmp_path / "config.toml").write_text('model = "scripted"\n')
    environ = environment(tmp_path, ALIPES_HOME=str(tmp_path))
    command = [sys.executable, "-c", CODE]
    done = subprocess.run(command, capture_output=True, text=True, check=True, env=environ, cwd=tmp_path)
    answer, modules = done.stdout.splitlines()
    assert answer == "You said: hi"
    found = defaultdict(set)
    for _, _, feature, *module in (name.split(".") for name in json.loads(modules)):
        if module:
            found[feature].add(module[0])
    assert set(found) == {kind.name for kind in FEATURES}
    assert {name: found[name] & NOT_ASKED for name in found if found[name] & NOT_ASKED} == {}
    assert {name: found[name] for name in UNUSED} == UNUSED
