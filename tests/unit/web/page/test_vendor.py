"""The modules of other projects that the page uses are those of the table vendor.toml."""

import hashlib
import tomllib
from pathlib import Path

import pytest

import alipes.web.page

FOLDER = Path(alipes.web.page.__file__).parent / "static" / "vendor"
TABLE = tomllib.loads((FOLDER / "vendor.toml").read_text())
OURS = {"vendor.toml", "preact.d.ts", "markdown-it.d.ts", "entities.d.ts", "highlight.d.ts", "temml.d.ts"}


def test_every_file_has_the_hash_of_the_table():
    files = {path.relative_to(FOLDER).as_posix(): path for path in FOLDER.rglob("*") if path.is_file()}
    found = {name: hashlib.sha256(path.read_bytes()).hexdigest() for name, path in files.items() if name not in OURS}
    assert found == TABLE["sha256"], "run: python tools/vendor_page.py"


@pytest.mark.parametrize("package", TABLE["packages"], ids=lambda package: package["name"])
def test_every_package_has_a_version_a_licence_and_the_hash_of_its_source(package):
    assert package["licence"] in ("MIT", "Apache-2.0", "BSD-3-Clause")
    assert package["licence_text"] in TABLE["sha256"] and package["module"] in TABLE["sha256"]
    assert package["integrity"].startswith("sha512-")
    assert f"{package['name']} {package['version']}" in (FOLDER / package["module"]).read_text().partition("\n")[0]


def test_no_module_evaluates_text_or_names_a_host_to_load_from():
    for name in ("preact.js", "markdown-it.js", "entities.js", "highlight.js", "temml.js", "uplot.js"):
        text = (FOLDER / name).read_text()
        assert "eval(" not in text and "new Function" not in text and "importScripts" not in text
