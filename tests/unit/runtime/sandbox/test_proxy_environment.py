"""Real programs reach hosts through the egress proxy with the variables they get, and show why one was refused."""

import asyncio
import io
import json
import shutil
import subprocess
import sys
import zipfile
from asyncio.subprocess import DEVNULL, PIPE
from contextlib import asynccontextmanager
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from alipes.runtime.sandbox import connect
from alipes.runtime.sandbox.proxy_environment import proxy_environment, ssh_proxy_command
from tests.unit.runtime.test_egress_proxy import Decisions, Server, open_proxy, run_with_names
from tests.world.environment import environment, require
from tests.world.tls import ca_file, server_context

SCRIPT = str(Path(connect.__file__))
PROGRAMS = ("curl", "wget", "npm", "node", "ssh")
pytestmark = pytest.mark.deadline(120)


class QuietHandler(SimpleHTTPRequestHandler):
    def log_message(self, *args):
        pass


@asynccontextmanager
async def serve_folder(folder):
    """A static web server on this machine; its port."""
    with ThreadingHTTPServer(("127.0.0.1", 0), partial(QuietHandler, directory=str(folder))) as server:
        running = asyncio.get_running_loop().run_in_executor(None, partial(server.serve_forever, poll_interval=0.01))
        try:
            yield server.server_port
        finally:
            await asyncio.to_thread(server.shutdown)
            await running


async def run(home, proxy_port, *command, stdin=b""):
    """Status, output and errors of a program in the sandbox's variables."""
    ssh_proxy = ssh_proxy_command(proxy_port, script=SCRIPT, python=sys.executable)
    variables = environment(home) | proxy_environment(proxy_port, ssh_proxy=ssh_proxy)
    (programs := home / "bin").mkdir(exist_ok=True)
    for name in PROGRAMS:
        if (found := shutil.which(name)) and not (programs / name).exists():
            (programs / name).symlink_to(found)
    variables["PATH"] = f"{programs}:{variables['PATH']}"
    process = await asyncio.create_subprocess_exec(
        *command, stdin=PIPE if stdin else DEVNULL, stdout=PIPE, stderr=PIPE, env=variables, cwd=home
    )
    out, err = await process.communicate(stdin or None)
    return process.returncode, out.decode(), err.decode()


def in_network(main, *names):
    """Run `main` where these names are this machine."""
    return run_with_names(main, **{name: [["127.0.0.1"]] for name in names})


def test_curl_reaches_http_and_https_and_shows_a_refusal(tmp_path):
    require("curl", "any package manager")
    decide = Decisions(evil="evil.test is not allowed.")

    async def main():
        plain, secure = Server(), Server()
        async with (
            plain.listen() as at,
            secure.listen(server_context()) as tls_at,
            open_proxy("model.test", decide=decide) as (_, port),
        ):
            http = await run(tmp_path, port, "curl", "-sS", f"http://model.test:{at}/")
            ca = ("--cacert", str(ca_file(tmp_path)))
            https = await run(tmp_path, port, "curl", "-sS", *ca, f"https://model.test:{tls_at}/")
            refused = await run(tmp_path, port, "curl", "-sS", "http://evil.test/")
            tunnel = await run(tmp_path, port, "curl", "-sS", "https://evil.test/")
            socks = await run(
                tmp_path, port, "curl", "-sS", "-x", f"socks5h://127.0.0.1:{port}", f"http://model.test:{at}/"
            )
        return http, https, refused, tunnel, socks, at, tls_at

    http, https, refused, tunnel, socks, at, tls_at = in_network(main, "model")
    assert http == https == socks == (0, "ok", "")
    assert refused == (0, "evil.test is not allowed.\n", "")
    assert tunnel[0] == 56 and "403" in tunnel[2]
    assert decide.asked[:2] == [("model.test", at, "http"), ("model.test", tls_at, "tunnel")]


def test_programs_reach_servers_of_their_own_on_loopback_directly(tmp_path):
    require("curl", "any package manager")
    decide = Decisions()

    async def main():
        async with Server().listen() as at, open_proxy(decide=decide) as (_, port):
            return [
                await run(tmp_path, port, "curl", "-sS", f"http://{host}:{at}/") for host in ("localhost", "127.0.0.1")
            ]

    assert in_network(main) == [(0, "ok", "")] * 2 and decide.asked == []


def test_wget_reaches_a_host(tmp_path):
    require("wget", "any package manager")

    async def main():
        async with Server().listen() as at, open_proxy("model.test") as (_, port):
            return await run(tmp_path, port, "wget", "-qO-", f"http://model.test:{at}/")

    assert in_network(main, "model") == (0, "ok", "")


def test_python_itself_reaches_a_host_and_its_error_names_the_refused_one(tmp_path):
    code = "import sys, urllib.request as u; print(u.urlopen(sys.argv[1]).read().decode())"

    async def main():
        decide = Decisions(evil="evil.test is not allowed.")
        async with Server().listen() as at, open_proxy("model.test", decide=decide) as (_, port):
            good = await run(tmp_path, port, sys.executable, "-c", code, f"http://model.test:{at}/")
            return good, await run(tmp_path, port, sys.executable, "-c", code, "https://evil.test/")

    good, bad = in_network(main, "model")
    assert good == (0, "ok\n", "") and bad[0] == 1 and "403 evil.test is not allowed." in bad[2]


def test_git_clones_over_http(tmp_path):
    git = require("git", "any package manager")
    work = tmp_path / "work"
    work.mkdir()
    identity = ("-c", "user.name=a", "-c", "user.email=a@x.example")
    for command in (
        ("init", "-q"),
        (*identity, "commit", "-q", "--allow-empty", "-m", "first"),
        ("update-server-info",),
    ):
        subprocess.run((git, *command), cwd=work, check=True, env=environment(tmp_path))

    async def main():
        async with serve_folder(tmp_path) as at, open_proxy("code.test") as (proxy, port):
            done = await run(tmp_path, port, "git", "clone", "-q", f"http://code.test:{at}/work/.git", "copy")
            return done, proxy.counts.allowed

    done, connections = in_network(main, "code")
    assert done[0] == 0, done
    assert (tmp_path / "copy" / ".git").is_dir() and connections > 0


def test_pip_installs_from_an_index(tmp_path):
    wheel = io.BytesIO()
    with zipfile.ZipFile(wheel, "w") as archive:
        archive.writestr("tiny.py", "x = 1\n")
        archive.writestr("tiny-1.0.dist-info/METADATA", "Metadata-Version: 2.1\nName: tiny\nVersion: 1.0\n")
        archive.writestr("tiny-1.0.dist-info/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        archive.writestr("tiny-1.0.dist-info/RECORD", "")
    folder = tmp_path / "index" / "tiny"
    folder.mkdir(parents=True)
    (folder / "tiny-1.0-py3-none-any.whl").write_bytes(wheel.getvalue())
    (folder / "index.html").write_text('<a href="tiny-1.0-py3-none-any.whl">tiny-1.0-py3-none-any.whl</a>')

    async def main():
        async with serve_folder(tmp_path / "index") as at, open_proxy("pip.test") as (_, port):
            index = ("--index-url", f"http://pip.test:{at}/", "--trusted-host", "pip.test")
            options = ("--disable-pip-version-check", "--no-cache-dir", "--target", str(tmp_path / "lib"))
            return await run(tmp_path, port, sys.executable, "-m", "pip", "install", "-q", *options, *index, "tiny")

    done = in_network(main, "pip")
    assert done[0] == 0, done
    assert (tmp_path / "lib" / "tiny.py").is_file()


def test_npm_asks_a_registry(tmp_path):
    require("npm", "any package manager")
    facts = {
        "name": "tiny",
        "dist-tags": {"latest": "1.0.0"},
        "versions": {"1.0.0": {"name": "tiny", "version": "1.0.0"}},
    }
    (tmp_path / "tiny").write_text(json.dumps(facts))

    async def main():
        async with serve_folder(tmp_path) as at, open_proxy("npm.test") as (_, port):
            options = ("--registry", f"http://npm.test:{at}/", "--no-update-notifier")
            return await run(tmp_path, port, "npm", "view", "tiny", "version", *options)

    done = in_network(main, "npm")
    assert done[0] == 0 and done[1].strip() == "1.0.0", done


def test_git_over_ssh_goes_through_the_proxy(tmp_path):
    require("ssh", "any package manager")
    require("git", "any package manager")
    decide = Decisions()

    async def main():
        server = Server(b"", first=b"SSH-2.0-test\r\n", until_end=True)
        async with server.listen() as at, open_proxy("code.test", decide=decide) as (_, port):
            async with asyncio.TaskGroup() as group:
                task = group.create_task(run(tmp_path, port, "git", "ls-remote", f"ssh://git@code.test:{at}/x"))
                while b"SSH-2.0-" not in server.received and not task.done():
                    await asyncio.sleep(0.01)
                server.stop()
            return server.received, task.result(), at

    received, done, at = in_network(main, "code")
    assert received.startswith(b"SSH-2.0-OpenSSH"), done
    assert decide.asked == [("code.test", at, "tunnel")]


def test_the_script_for_ssh_passes_bytes_and_reports_a_refusal(tmp_path):
    async def main():
        server = Server(b"answer", until_end=True)
        decide = Decisions(evil="evil.test is not allowed.")
        async with server.listen() as at, open_proxy("code.test", decide=decide) as (_, port):
            script = (sys.executable, "-I", "-S", SCRIPT, str(port))
            good = await run(tmp_path, port, *script, "code.test", str(at), stdin=b"\0question")
            return good, server.received, await run(tmp_path, port, *script, "evil.test", "22")

    good, received, bad = in_network(main, "code")
    assert good == (0, "answer", "") and received == b"\0question"
    assert bad == (1, "", "evil.test is not allowed.\n")


def test_the_variables_are_those_of_the_port():
    variables = proxy_environment(3128)
    assert variables["https_proxy"] == variables["ALL_PROXY"] == "http://127.0.0.1:3128"
    assert variables["no_proxy"] == "localhost,127.0.0.1,::1" and "GIT_SSH_COMMAND" not in variables
