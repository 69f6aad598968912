"""The modules of the first screen in one script, run by Node."""

import subprocess

import pytest

from alipes.web.page.bundle import bundle_modules, make_stub
from tests.world.environment import require

pytestmark = pytest.mark.service("node")
MODULES = {
    "app.js": 'import start, { count as first } from "./parts/a.js";\nimport "./parts/b.js";\n'
    'import { join } from "./outside.js";\nglobalThis.seen = [start(), first];\n'
    'seen.push(join((await import("./parts/b.js")).name, (await import("./later.js")).value));\n',
    "parts/a.js": 'import { name } from "./b.js";\nexport const count = 1;\n'
    "export default function start() {\n  return `start ${name}`;\n}\n",
    "parts/b.js": 'export const name = "b";\nexport { join } from "../outside.js";\n',
}
"""The first of them waits, which the real ones do not: only here the bundle has to be asynchronous."""
OUTSIDE = {
    "outside.js": 'export const join = (...words) => words.join(" ");\n',
    "later.js": 'import start, { count } from "./parts/a.js";\nexport const value = `${start()} ${count}`;\n',
}


def test_a_bundle_runs_each_module_once_and_later_modules_find_its_values(tmp_path):
    (tmp_path / "parts").mkdir()
    bundle = bundle_modules({name: text for name, text in MODULES.items() if name != "app.js"})
    (tmp_path / "first.mjs").write_text(bundle.replace(".js", ".mjs"))
    for name, text in {**MODULES, **OUTSIDE}.items():
        source = text if name in OUTSIDE or name == "app.js" else make_stub(name, text, "first.js")
        (tmp_path / name.replace(".js", ".mjs")).write_text(source.replace(".js", ".mjs"))
    code = "import './app.mjs'; console.log(JSON.stringify(seen))"
    done = subprocess.run(
        [require("node"), "--input-type=module", "-e", code], cwd=tmp_path, capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == '["start b",1,"b start b 1"]'


def test_modules_come_after_what_they_import():
    bundle = bundle_modules({name: MODULES[name] for name in ("parts/a.js", "parts/b.js")})
    assert bundle.index('["parts/b.js"] =') < bundle.index('["parts/a.js"] =')
