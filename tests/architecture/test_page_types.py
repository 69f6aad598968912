"""The scripts of the page have no type errors: `tsc --checkJs` with the types in their comments."""

import subprocess

import pytest

from tests.world.environment import ROOT, SERVICES, require, skip

FOLDER = ROOT / "src" / "alipes" / "web" / "page"
COMPILER = SERVICES / "node_modules" / "typescript" / "bin" / "tsc"


@pytest.fixture
def check_types():
    node = require("node")
    if not COMPILER.exists():
        skip("typescript is not installed (make services)")

    def run(*words: object) -> tuple[int, str]:
        command = [node, COMPILER, "--pretty", "false", *words]
        done = subprocess.run(list(map(str, command)), cwd=ROOT, capture_output=True, text=True, check=False)
        return done.returncode, done.stdout + done.stderr

    return run


@pytest.mark.service("node")
@pytest.mark.parametrize("config", ["tsconfig.json", "tsconfig.worker.json"])
def test_the_scripts_of_the_page_have_no_type_errors(check_types, config):
    status, said = check_types("--project", FOLDER / config)
    assert (status, said) == (0, "")


@pytest.mark.service("node")
def test_the_check_finds_a_wrong_type(check_types, tmp_path):
    (tmp_path / "wrong.js").write_text('/** @type {number} */\nexport const count = "one";\n')
    (tmp_path / "tsconfig.json").write_text(f'{{"extends": "{FOLDER}/tsconfig.json", "include": ["*.js"]}}')
    status, said = check_types("--project", tmp_path)
    assert status != 0 and "wrong.js(2,14): error TS2322" in said
