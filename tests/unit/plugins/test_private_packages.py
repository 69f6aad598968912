"""Packages in the folder of a plugin: who can import them, and in which version."""

import subprocess
import sys
from pathlib import Path

import pytest

SRC = Path(__file__).parents[3] / "src"
RUN = """\
import sys
from importlib import import_module
from pathlib import Path
from alipes.plugins.discovery import import_fresh
def load(name): return import_fresh(name, Path(name))
"""


@pytest.fixture
def python(tmp_path):
    def python(code: str) -> str:
        env = {"PYTHONPATH": str(SRC)}
        done = subprocess.run([sys.executable, "-c", RUN + code], cwd=tmp_path, env=env, capture_output=True, text=True)
        return done.stdout + done.stderr

    return python


def plugin(folder: Path, code: str, **packages: str) -> None:
    folder.mkdir(exist_ok=True)
    (folder / "__init__.py").write_text(code)
    for name, text in packages.items():
        file = folder / ".packages" / f"{name.replace('__of__', '/')}.py"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)


def test_code_of_the_plugin_finds_its_packages_when_loaded_and_later(tmp_path, python):
    code = "import boots\ndef later():\n    import laces\n    return laces.n\n"
    plugin(tmp_path / "a", code, boots="from soles import n", soles="n = 5", laces="n = 6")
    assert python("a = load('a')\nprint(a.boots.n, a.later())") == "5 6\n"


def test_other_code_does_not_find_them(tmp_path, python):
    plugin(tmp_path / "a", "", boots="")
    plugin(tmp_path / "b", "import boots")
    plugin(tmp_path / "c", "", other="")
    assert "No module named 'boots'" in python("load('a')\nload('c')\nload('b')")
    assert "No module named 'boots'" in python("load('a')\nimport boots")


def test_the_packages_of_our_own_python_take_precedence(tmp_path, python):
    plugin(tmp_path / "a", "import msgspec", msgspec="n = 1")
    assert python("print(hasattr(load('a').msgspec, 'n'))") == "False\n"


def test_of_two_versions_the_first_imported_serves_both(tmp_path, python):
    for name in ("a", "b"):
        plugin(tmp_path / name, "import boots", boots=f"n = {name!r}")
    assert python("print(load('a').boots.n, load('b').boots.n)") == "a a\n"
    assert python("print(load('b').boots.n, load('a').boots.n)") == "b b\n"


def test_a_reload_after_an_update_gets_the_new_version_and_otherwise_the_same_module(tmp_path, python):
    plugin(tmp_path / "a", "import boots", boots="n = 1")
    plugin(tmp_path / "new", "", boots="n = 2")
    code = (
        "one, again = load('a').boots, load('a').boots\nprint(one is again)\n"
        "Path('a/.packages').rename('old')\nPath('new/.packages').rename('a/.packages')\n"
        "print(load('a').boots.n, one.n)"
    )
    assert python(code) == "True\n2 1\n"


def test_a_namespace_package_may_be_in_several_places(tmp_path, python):
    plugin(tmp_path / "a", "import far.near", far__of__near="")
    (tmp_path / "far").mkdir()
    (tmp_path / "far" / "here.py").write_text("")
    assert python("import far.here\nprint(load('a').far.near.__name__)") == "far.near\n"


def test_the_version_of_a_package_can_be_asked_for(tmp_path, python):
    code = "from importlib.metadata import version\nn = version('boots')"
    plugin(tmp_path / "a", code, boots="")
    about = tmp_path / "a" / ".packages" / "boots-2.1.dist-info"
    about.mkdir()
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: boots\nVersion: 2.1\n")
    assert python("print(load('a').n)") == "2.1\n"


def test_the_plugin_of_a_hermes_loader_finds_its_packages(tmp_path, python):
    plugin(tmp_path / "a", "import boots\ndef register(ctx): ...\n", boots="")
    code = (
        "from alipes.compat.hermes.loader import import_register, module_name\n"
        "from alipes.plugins.discovery import inspect_folder\n"
        "found = inspect_folder(Path('a').absolute())\n"
        "print(import_register(found, module_name(found)).__name__)"
    )
    assert python(code) == "register\n"
