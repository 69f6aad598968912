"""Hostile paths and URLs in every tool that takes one: no secret is read, nothing changed, no internal host called."""

import asyncio
import base64
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from alipes.cli.ask import EXIT_DENIED
from alipes.runtime.http.clients import ClientScope
from alipes.runtime.http.public_fetch import FetchError, PublicFetcher
from tests.e2e.program import Home
from tests.torture.homes import write_home
from tests.world.model_server import Call, Calls, ModelServer, Say

CANARY = "canary-of-names-44d1e0"
NAMES = (
    "{home}/.env",
    "{home}//./.env",
    "home/.env",
    "../{name}/home/.env",
    "sub/../home/.env",
    "link",
    "chain",
    "folder/.env",
    "hard",
    "file://{home}/.env",
    "file:/{home}/.env",
    "/proc/self/cwd/home/.env",
    "/proc/self/root{home}/.env",
    "/dev/fd/../../{home}/.env",
    "{home}/.env\0.txt",
    "link\0",
    "~/home/.env",
    "{home}/alipes.db",
    "/proc/self/environ",
    "/proc/self/task/self/environ",
)
"""Paths that must not be readable. `~` is the parent of the home."""
PIXEL = base64.b64encode(b"\x89PNG\r\n\x1a\n").decode()


def calls_for(name: str) -> list[Call]:
    """A call of every tool that takes a path."""
    return [
        Call("read_file", {"path": name}),
        Call("search_files", {"pattern": "canary", "path": name}),
        Call("write_file", {"path": name, "content": "overwritten"}),
        Call("patch", {"mode": "replace", "path": name, "old_string": "canary", "new_string": "overwritten"}),
        Call("vision_analyze", {"question": "?", "path": name}),
        Call("vision_analyze", {"question": "?", "image_url": name}),
        Call("image_generate", {"prompt": "x", "image_url": name}),
        Call("terminal", {"command": "cat .env", "workdir": name.removesuffix("/.env")}),
        Call("execute_code", {"code": f"print(read_file({name!r}))"}),
    ]


def model_that_calls(calls: list[Call]):
    def reply(body):
        if not body.get("tools"):
            return Say("A title")
        return Say("All done.") if body["messages"][-1]["role"] == "tool" else Calls(tuple(calls))

    return reply


@pytest.mark.deadline(120)
async def test_no_path_in_any_tool_leads_to_a_secret(tmp_path, figures):
    home = Home(tmp_path / "home")
    names = [each.format(home=home.path, name=tmp_path.name) for each in NAMES]
    calls = [
        Call(each.name, each.args, id=f"c{n}") for n, each in enumerate(c for name in names for c in calls_for(name))
    ]
    async with ModelServer(model_that_calls(calls)) as model:
        write_home(home, model, lines=('images.model = "test/painter"',))
        with (home.path / ".env").open("a") as file:
            file.write(f"OPENAI_API_KEY={CANARY}\n")
        make_links(home.path, tmp_path)
        before = (home.path / ".env").read_bytes(), (home.path / "config.toml").read_bytes()
        done = await home.run("ask", "go")
        assert done.status == EXIT_DENIED, done.err
        assert before == ((home.path / ".env").read_bytes(), (home.path / "config.toml").read_bytes())
        assert all(CANARY.encode() not in asked.raw for asked in model.requests)
        seen = [each["content"] for each in model.bodies[-1]["messages"] if each["role"] == "tool"]
    assert len(seen) == len(calls)
    assert not any("ALIPES_API_KEY" in each for each in seen), "not even the names of secrets are shown"
    assert not any("no tool" in each or "ValueError" in each or "plugin core" in each for each in seen), seen
    figures.tried(len(calls))


def make_links(home: Path, work: Path) -> None:
    (work / "sub").mkdir()
    (work / "link").symlink_to(home / ".env")
    (work / "chain").symlink_to("link")
    (work / "folder").symlink_to(home)
    (work / "hard").hardlink_to(home / ".env")


@asynccontextmanager
async def open_listener(redirect: str = "", host: str = "127.0.0.1") -> AsyncIterator[tuple[int, list[bytes]]]:
    """An internal server: its port and the requests it received. `redirect`: where it redirects to."""
    asked: list[bytes] = []

    async def take(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        asked.append(await reader.read(4096))
        head = f"302 Found\r\nlocation: {redirect}" if redirect else "200 OK"
        writer.write(f"HTTP/1.1 {head}\r\ncontent-length: 0\r\nconnection: close\r\n\r\n".encode())
        writer.close()

    server = await asyncio.start_server(take, host, 0)
    async with server:
        yield server.sockets[0].getsockname()[1], asked


ADDRESSES = (
    "http://127.0.0.1:{port}/x.png",
    "HTTP://127.0.0.1:{port}/x.png",
    "http://localhost:{port}/x.png",
    "http://localhost.:{port}/x.png",
    "http://LOCALHOST:{port}/x.png",
    "http://127.1:{port}/x.png",
    "http://2130706433:{port}/x.png",
    "http://0x7f000001:{port}/x.png",
    "http://0x7f.0.0.1:{port}/x.png",
    "http://0177.0.0.1:{port}/x.png",
    "http://017700000001:{port}/x.png",
    "http://0:{port}/x.png",
    "http://0.0.0.0:{port}/x.png",
    "http://[::1]:{port}/x.png",
    "http://[::]:{port}/x.png",
    "http://[::ffff:127.0.0.1]:{port}/x.png",
    "http://[::ffff:7f00:1]:{port}/x.png",
    "http://[64:ff9b::7f00:1]:{port}/x.png",
    "http://[2002:7f00:1::]:{port}/x.png",
    "http://127.0.0.1.:{port}/x.png",
    "http://①②⑦.⓪.⓪.①:{port}/x.png",
    "http://user@127.0.0.1:{port}/x.png",
    "http://example.org@127.0.0.1:{port}/x.png",
    "http://127.0.0.1:{port}#@example.org/x.png",
    "http://127.0.0.1:{port}\\@example.org/x.png",
    " http://127.0.0.1:{port}/x.png",
    "http:127.0.0.1:{port}/x.png",
    "//127.0.0.1:{port}/x.png",
    "ftp://127.0.0.1:{port}/x.png",
    "gopher://127.0.0.1:{port}/x.png",
    "http://169.254.169.254/latest/meta-data/",
    "http://[fd00:ec2::254]/latest/",
    "http://metadata.google.internal/",
    "http://10.0.0.1:{port}/x.png",
    "http://{hostname}:{port}/x.png",
    "http://127.0.0.1:{stair}/leads-inside.png",
)


@pytest.mark.deadline(90)
async def test_no_url_reaches_an_internal_host_directly_or_by_a_redirect(tmp_path, figures):
    home = Home(tmp_path / "home")
    async with (
        open_listener() as (port, asked),
        open_listener(f"http://127.0.0.1:{port}/x.png") as (redirect_port, redirects),
    ):
        names = {"port": port, "stair": redirect_port, "hostname": socket.gethostname()}
        places = [each.format(**names) for each in ADDRESSES]
        calls = [Call("vision_analyze", {"question": "?", "image_url": each}) for each in places]
        calls += [Call("image_generate", {"prompt": "x", "image_url": each}) for each in places]
        calls += [Call("image_generate", {"prompt": "x", "reference_image_urls": places[:8]})]
        async with ModelServer(
            model_that_calls([Call(c.name, c.args, id=f"c{n}") for n, c in enumerate(calls)])
        ) as model:
            write_home(
                home, model, lines=(f'fetch.allow = ["127.0.0.1:{redirect_port}"]', 'images.model = "test/painter"')
            )
            done = await home.run("ask", "go")
            assert done.status == 0, done.err
            seen = [each["content"] for each in model.bodies[-1]["messages"] if each["role"] == "tool"]
        assert asked == [] and redirects, (asked, "only the redirecting server was allowed")
        assert len(seen) == len(calls) and not any("no tool" in each for each in seen)
    figures.tried(len(calls))


class RebindingLoop(asyncio.SelectorEventLoop):
    """Resolves a name to a public address and to this machine in turn."""

    lookups = 0

    async def getaddrinfo(self, host, port, **more):
        RebindingLoop.lookups += 1
        seen = "192.88.99.1" if RebindingLoop.lookups % 2 else "127.0.0.1"  # public and unused
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (seen, port))]


def test_a_rebound_name_is_connected_to_the_address_that_was_checked():
    async def main() -> list[bytes]:
        async with open_listener() as (port, asked), ClientScope() as scope:
            for _ in range(4):
                with pytest.raises(FetchError):
                    await PublicFetcher(scope).fetch(f"http://rebound.example:{port}/", largest=100, seconds=0.3)
            return asked

    RebindingLoop.lookups = 0
    with asyncio.Runner(loop_factory=RebindingLoop) as runner:
        assert runner.run(main()) == []
    assert RebindingLoop.lookups == 4, "one lookup per fetch"
