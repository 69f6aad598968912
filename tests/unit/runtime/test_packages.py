"""Installing pinned packages: with uv or pip, what is shown, and the reasons of failures."""

import base64
import hashlib
import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import msgspec
import pytest

from alipes.runtime import packages

PIP_OUTPUT = """\
Collecting httpx2==1.0 (from -r pins.txt (line 3))
  Downloading httpx2-1.0-py3-none-any.whl.metadata (5.2 kB)
  Downloading httpx2-1.0-py3-none-any.whl (1.6 MB)
  Using cached numpy-2.1.0-cp311-cp311-manylinux_2_17_x86_64.whl (16.3 MB)
Installing collected packages: numpy, httpx2
"""
LOAD = """
import sys
from importlib.machinery import ExtensionFileLoader
from importlib.util import module_from_spec, spec_from_file_location
loader = ExtensionFileLoader("msgspec._core", sys.argv[1])
module = module_from_spec(spec_from_file_location("msgspec._core", sys.argv[1], loader=loader))
loader.exec_module(module)
print(module.__file__)
"""


def test_the_steps_show_packages_and_sizes():
    assert list(packages.describe_steps(PIP_OUTPUT.splitlines(), 2)) == [
        "package 1 of 2, 2 MB: httpx2",
        "package 2 of 2, 18 MB: numpy",
        "installing 2 packages (18 MB downloaded)",
    ]
    assert list(packages.describe_steps(["Downloading lxml (5.0MiB)"], 3)) == ["package 1 of 3, 5 MB: lxml"]
    assert packages.count_requirements("a==1 \\\n    --hash=x\n# b==2\nc @ file:///c.whl\n") == 2


@pytest.mark.skipif(sys.platform != "linux", reason="ELF")
def test_a_library_without_its_debug_information_is_smaller_and_still_loads(tmp_path):
    library = tmp_path / "_core.so"
    shutil.copy(msgspec._core.__file__, library)
    with library.open("ab") as file:
        file.write(b"debug information" * 10_000)
    before = library.stat().st_size
    assert packages.cut_debug_information(library) >= 170_000
    assert library.stat().st_size <= before - 170_000
    done = subprocess.run([sys.executable, "-c", LOAD, library], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == str(library)
    assert packages.cut_debug_information(library) == 0


def test_another_file_is_left_as_it_is(tmp_path):
    for data in (b"", b"\x7fELF", b"text" * 100, b"\xcf\xfa\xed\xfe" * 50):
        (tmp_path / "x.so").write_bytes(data)
        assert packages.cut_debug_information(tmp_path / "x.so") == 0
        assert (tmp_path / "x.so").read_bytes() == data


def test_a_read_only_or_foreign_environment_says_what_to_do(tmp_path):
    paths = {"purelib": str(tmp_path / "site"), "stdlib": str(tmp_path)}
    assert "is read-only" in packages.find_obstacle(paths, virtual=True)
    (tmp_path / "EXTERNALLY-MANAGED").touch()
    assert "belongs to the system" in packages.find_obstacle(paths, virtual=False)
    (tmp_path / "site").mkdir()
    assert packages.find_obstacle(paths, virtual=True) == ""


@pytest.fixture
def fresh_python(tmp_path):
    """An environment of its own without pip."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", tmp_path / "venv"], check=True)
    return tmp_path / "venv" / "bin" / "python"


def write_wheel(folder):
    name, files = "tinything-1.0", {"tinything.py": "VALUE = 42\n"}
    files[f"{name}.dist-info/METADATA"] = "Metadata-Version: 2.1\nName: tinything\nVersion: 1.0\n"
    files[f"{name}.dist-info/WHEEL"] = "Wheel-Version: 1.0\nGenerator: x\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
    wheel = folder / f"{name}-py3-none-any.whl"
    with zipfile.ZipFile(wheel, "w") as archive:
        for path, text in files.items():
            archive.writestr(path, text)
        digests = {
            path: base64.urlsafe_b64encode(hashlib.sha256(text.encode()).digest()) for path, text in files.items()
        }
        record = "".join(f"{path},sha256={digest.decode().rstrip('=')},\n" for path, digest in digests.items())
        archive.writestr(f"{name}.dist-info/RECORD", record)
    digest = hashlib.sha256(wheel.read_bytes()).hexdigest()
    (folder / "pins.txt").write_text(f"tinything==1.0 \\\n    --hash=sha256:{digest}\n    # via alipes\n")
    return folder / "pins.txt"


def run(python, pins, path=os.defpath, **env):
    command = [python, "-I", packages.__file__, pins]
    env = {"PATH": path, "HOME": str(pins.parent), "PIP_RETRIES": "0", **env}
    return subprocess.run(command, env=env, capture_output=True, text=True, check=False)


def lend_pip(python):
    """Let the environment import the pip of this one, if there is one."""
    pip = pytest.importorskip("pip", reason="needs pip")
    site = next(python.parents[1].glob("lib/python*/site-packages"))
    (site / "lent.pth").write_text(f"{Path(pip.__file__).parents[1]}\n")
    return site


def test_pip_installs_exactly_what_is_pinned(fresh_python, tmp_path):
    pins, site = write_wheel(tmp_path), lend_pip(fresh_python)
    given = {"PIP_NO_INDEX": "1", "PIP_FIND_LINKS": str(tmp_path)}
    done = run(fresh_python, pins, **given)
    assert (done.returncode, done.stderr) == (0, "") and "installing it" in done.stdout
    assert (site / "tinything.py").read_text() == "VALUE = 42\n"
    pins.write_text(pins.read_text().replace("sha256:", "sha256:0")[:-30])
    shutil.rmtree(site / "tinything-1.0.dist-info")
    refused = run(fresh_python, pins, **given)
    assert refused.returncode == 1 and "could not be installed" in refused.stderr


def test_without_a_network_the_reason_is_one_sentence(fresh_python, tmp_path):
    pins, _ = write_wheel(tmp_path), lend_pip(fresh_python)
    done = run(fresh_python, pins, PIP_INDEX_URL="http://127.0.0.1:9/simple", PIP_FIND_LINKS="")
    assert done.returncode == 1
    assert done.stderr == "The packages could not be downloaded: check the network and the proxy, then try again.\n"


def test_without_pip_and_uv_the_reason_says_what_to_install(fresh_python, tmp_path):
    done = run(fresh_python, write_wheel(tmp_path))
    assert done.returncode == 1 and done.stderr.startswith("Neither uv nor pip is there")


def test_uv_is_used_if_it_is_on_the_path(fresh_python, tmp_path):
    pins = write_wheel(tmp_path)
    programs = tmp_path / "programs"
    programs.mkdir()
    (programs / "uv").write_text('#!/bin/sh\necho "$@" > "$HOME/words"\n')
    (programs / "uv").chmod(0o755)
    done = run(fresh_python, pins, path=f"{programs}:{os.defpath}")
    words = (tmp_path / "words").read_text()
    assert done.returncode == 0 and words.startswith(f"pip install --python {fresh_python} ")
    assert "--require-hashes" in words and f"-r {pins}" in words
