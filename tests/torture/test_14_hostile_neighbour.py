"""Hostile web pages, rebound names and wrong keys at every route; shell tricks in every mode."""

import asyncio
import re

import httpx2
import pytest

from alipes.cli.ask import EXIT_DENIED
from tests.e2e.program import Home
from tests.e2e.service import OWNER, open_serve
from tests.torture.homes import open_service, write_home
from tests.torture.trials import LONG
from tests.world.environment import LIMIT_S
from tests.world.model_server import Call, Calls, ModelServer, Say
from tests.world.shell_tricks import TRICKS
from tests.world.telegram_server import TelegramServer
from tests.world.terminal_process import ENTER, TerminalProcess
from tests.world.wait import until

RISKY = (
    "git push --force; touch {}",
    "true && git push --force; touch {}",
    "git push --forc; touch {}",
    "env git push -f; touch {}",
    "sh -c 'git push --force; touch {}'",
    "echo $(git push --force); touch {}",
    "bash <<E\ngit push --force\ntouch {}\nE",
    "X=push; git $X --force; touch {}",
    "echo a | xargs git push --force; touch {}",
    "\\git push --mirr; touch {}",
    "'git' -C . pu\"sh\" --delete origin x; touch {}",
    "eval 'git push --force; touch {}'",
    "nohup git push --force & touch {}",
)
"""Harmless in an empty folder, in case one of them runs after all."""
TRICKY = tuple(f"{each}\ntouch {{}}" for each in TRICKS if "git push --force" in each and "{" not in each)
"""More of them, from the corpus of shell tricks."""
HARMLESS = ("echo push --force; touch {}", "grep -r 'rm -rf' . ; touch {}", "# git push --force\ntouch {}")
PUBLIC = {"/health"}
"""Routes without a key."""
LOCAL_WITHOUT_KEY = ("/ready", "/metrics", "/openapi.json")
"""Routes that need a key only if other machines can reach them."""


def commands(corpus: tuple[str, ...]) -> list[str]:
    return [command.format(f"ran{number}") for number, command in enumerate(corpus)]


def script(corpus: tuple[str, ...]):
    """A model that calls all of them in one answer."""
    calls = tuple(Call("terminal", {"command": each}, id=f"c{n}") for n, each in enumerate(commands(corpus)))

    def reply(body):
        if not body.get("tools"):
            return Say("A title")
        return Say("All done.") if body["messages"][-1]["role"] == "tool" else Calls(calls)

    return reply


def take_executed(folder, corpus: tuple[str, ...]) -> list[str]:
    """The commands that were run; removes their marker files."""
    marks = [path for path in folder.iterdir() if re.fullmatch(r"ran\d+", path.name)]
    numbers = sorted(int(path.name[3:]) for path in marks)
    for path in marks:
        path.unlink()
    return [corpus[number] for number in numbers]


def choose_commands(few: int) -> tuple[str, ...]:
    """All of them in the long pass; otherwise the risky ones and every n-th trick."""
    step = max(len(TRICKY) // few, 1)
    return (*RISKY, *(TRICKY if LONG else TRICKY[::step]))


@pytest.mark.deadline(180)
async def test_the_same_commands_are_refused_in_every_mode(tmp_path, figures):
    risky = choose_commands(10)
    home, corpus = Home(tmp_path / "home"), (*risky, *HARMLESS)
    figures.tried(len(corpus) * 4)
    async with ModelServer(script(corpus)) as model, TelegramServer() as telegram:
        write_home(home, model, telegram)
        assert (await home.run("ask", "go")).status == EXIT_DENIED
        assert take_executed(tmp_path, corpus) == list(HARMLESS), "one-shot"
        assert (await home.run("webhook", "add", "push", "--prompt", "go", "--tools", "terminal")).status == 0
        async with open_service(home) as (served, api):
            run = await api.begin("go")
            async with api.listening(run) as listener:
                asked = 0
                async for heard in listener:
                    if heard.name == "approval_asked":
                        asked += 1
                        seen = await api.ask("POST", f"/runs/{run}/approval", {"choice": "no"})
                        assert seen.status_code == 202, seen.text
            assert asked == len(risky) and take_executed(tmp_path, corpus) == list(HARMLESS), "API"
            await served.ready()
            before = count_result_requests(model)
            assert (await home.run("webhook", "test", "push")).status == 0
            await until(lambda: count_result_requests(model) > before)
            assert take_executed(tmp_path, corpus) == list(HARMLESS), "webhook"
            telegram.chats.say("go", chat=OWNER)
            for number in range(len(risky)):
                await telegram.until(lambda number=number: len(questions(telegram)) > number)
                telegram.chats.say("no", chat=OWNER)
            await telegram.shows(OWNER, "All done.")
            assert len(questions(telegram)) == len(risky)
            assert take_executed(tmp_path, corpus) == list(HARMLESS), "gateway"
            assert await served.left() == 0


def count_result_requests(model: ModelServer) -> int:
    """Number of requests that contain the results of all calls."""
    return sum(body["messages"][-1]["role"] == "tool" for body in model.bodies if body.get("tools"))


def questions(telegram: TelegramServer) -> set[int]:
    """Numbers of the messages that were sent with approval buttons."""
    calls = [call for call in telegram.of("sendMessage") if call.code == 200 and "reply_markup" in call.given]
    return {number for number, _ in enumerate(calls)}


@pytest.mark.deadline(90)
async def test_the_terminal_refuses_the_same_commands(tmp_path):
    home, corpus = Home(tmp_path / "home"), (*(RISKY if LONG else RISKY[2::4]), *HARMLESS)
    async with ModelServer(script(corpus)) as model:
        home.use(model)
        async with TerminalProcess.of(home) as terminal:
            await terminal.until("›")
            terminal.type("go" + ENTER)
            for number in range(len(corpus) - len(HARMLESS)):
                await terminal.until(lambda number=number: f"ran{number}" in terminal.text and "once" in terminal.text)
                await asyncio.sleep(0.8)  # a key answers a question only after a pause
                terminal.type("n")
            await terminal.until("All done.")
    assert take_executed(tmp_path, corpus) == list(HARMLESS)


@pytest.mark.deadline(60)
async def test_always_allows_exactly_the_approved_command(tmp_path):
    home = Home(tmp_path / "home")
    first = "git push --force; touch ran0"
    others = (
        "git push --force origin; touch ran0",
        "git push --force; git push --delete origin x",
        "git push --mirror",
    )
    said = []

    def reply(body):
        if not body.get("tools"):
            return Say("A title")
        if body["messages"][-1]["role"] == "tool":
            return Say("done")
        return Calls((Call("terminal", {"command": said[-1]}),))

    async with ModelServer(reply) as model:
        write_home(home, model)
        async with open_service(home) as (_served, api):

            async def asked(command: str, answer: str) -> bool:
                said.append(command)
                run = await api.begin("go", session="s")
                async with api.listening(run) as listener:
                    async for heard in listener:
                        if heard.name == "approval_asked":
                            body = {"choice": answer}
                            seen = await api.ask("POST", f"/runs/{run}/approval", body)
                            assert seen.status_code == 202, seen.text
                            await listener.rest()
                            return True
                return False

            assert await asked(first, "always")
            assert not await asked(first, "no"), "it is always allowed now"
            for each in others:
                assert await asked(each, "no"), each


@pytest.mark.deadline(90)
async def test_every_route_refuses_strangers_other_pages_and_rebound_names(tmp_path, figures):
    home = Home(tmp_path / "home")
    async with ModelServer(lambda body: Say("well")) as model, TelegramServer() as telegram:
        brought = {"mode": '"webhook"', "webhook_url": '"https://bot.example/telegram"'}
        write_home(home, model, telegram, **brought)
        keys = await _keys(home)
        assert (await home.run("webhook", "add", "push", "--prompt", "Look at it.")).status == 0
        async with open_serve(home) as served:
            async with httpx2.AsyncClient(base_url=served.address, trust_env=False, timeout=LIMIT_S) as client:
                routes = await _routes(client)
                assert len(routes) > 20
                for number, (method, path) in enumerate(routes, 1):
                    # wrong keys of one peer are slowed, so each route is tried by another one
                    await _check_refused(f"127.0.1.{number}", served.address, (method, path), *keys)
                for path in ("/hooks/push", "/telegram"):
                    await _check_unsigned(client, path)
    assert len(model.requests) == 0
    figures.tried(len(routes))


async def _keys(home: Home) -> tuple[str, tuple[str, ...]]:
    """A read-only key and some revoked ones."""
    made = await home.run("serve", "key", "add", "reader", "--scope", "read")
    revoked = await home.run("serve", "key", "add", "former", "--scope", "admin")
    old = await home.run("serve", "key", "add", "old", "--scope", "admin", "--days", "0.000001")
    assert (made.status, revoked.status, old.status) == (0, 0, 0)
    assert (await home.run("serve", "key", "revoke", "former")).status == 0
    return made.out.strip(), (revoked.out.strip(), old.out.strip())


async def _routes(client: httpx2.AsyncClient) -> list[tuple[str, str]]:
    """The routes of the OpenAPI document, and those that are not in it."""
    document = (await client.get("/openapi.json", headers={"authorization": "Bearer key-ann-0123456789abcdef"})).json()
    seen = [
        (method.upper(), re.sub(r"\{\w+\}", "x", path))
        for path, methods in document["paths"].items()
        for method in methods
        if method in ("get", "post", "put", "patch", "delete")
    ]
    beside = [("GET", path) for path in ("/health", "/ready", "/metrics", "/openapi.json")]
    return [*seen, *(each for each in beside if each not in seen), ("POST", "/hooks/push"), ("POST", "/telegram")]


async def _check_unsigned(client: httpx2.AsyncClient, path: str) -> None:
    """Webhook calls without the right signature are refused; an API key does not replace it."""
    body = b'{"update_id": 1, "message": {"message_id": 1, "chat": {"id": 7, "type": "private"}, "text": "hi"}}'
    for headers in (
        {},
        {"authorization": "Bearer key-ann-0123456789abcdef"},
        {"x-telegram-bot-api-secret-token": ""},
        {"x-telegram-bot-api-secret-token": "wrong"},
        {"x-hub-signature-256": "sha256="},
        {"x-signature": "wrong", "webhook-signature": "v1,wrong", "webhook-id": "1", "webhook-timestamp": "1"},
    ):
        seen = await client.post(path, content=body, headers=headers)
        assert seen.status_code in (400, 401, 403), (path, headers, seen.status_code)


@pytest.mark.deadline(60)
async def test_a_service_reachable_from_other_machines_needs_a_key_for_all_but_health(tmp_path):
    home = Home(tmp_path / "home")
    async with ModelServer(lambda body: Say("well")) as model:
        write_home(home, model)
        kept = (home.path / ".env").read_text()
        (home.path / ".env").write_text("")
        refused = await home.run("serve", "--host", "0.0.0.0", "--port", "0")
        assert refused.status == 2 and "no API key is set" in refused.err
        (home.path / ".env").write_text(kept)
        async with open_serve(home, "--host", "0.0.0.0") as served:
            port = served.address.rpartition(":")[2]
            async with httpx2.AsyncClient(base_url=f"http://127.0.0.1:{port}", trust_env=False, timeout=20) as client:
                for method, path in await _routes(client):
                    seen = await client.request(method, path, content=b"{}")
                    assert (seen.status_code < 300) is (path in PUBLIC), (method, path, seen.status_code)
                    rebound = await client.request(method, path, headers={"host": "rebound.example"})
                    assert rebound.status_code == 421, (method, path)
            assert await served.left() == 0


async def _check_refused(
    source: str, address: str, route: tuple[str, str], reader: str, expired_keys: tuple[str, ...]
) -> None:
    transport = httpx2.AsyncHTTPTransport(local_address=source)
    async with httpx2.AsyncClient(base_url=address, transport=transport, timeout=LIMIT_S) as client:
        await _check_keys(client, *route, reader, expired_keys)


async def _check_keys(client, method: str, path: str, reader: str, expired_keys: tuple[str, ...]) -> None:
    body = {"content": b'{"input":"x"}', "headers": {"content-type": "application/json"}}

    async def ask(**headers: str) -> httpx2.Response:
        return await client.request(method, path, **{**body, "headers": {**body["headers"], **headers}})

    where, known = f"{method} {path}", {"authorization": "Bearer key-ann-0123456789abcdef"}
    rebound = await ask(host="rebound.example", **known)
    assert rebound.status_code in (400, 403, 421), where
    other = await ask(origin="https://evil.example", **{"sec-fetch-site": "cross-site"}, **known)
    assert "access-control-allow-origin" not in other.headers, where
    if method != "GET":
        assert other.status_code == 403, (where, other.status_code)
    if path in PUBLIC or path in LOCAL_WITHOUT_KEY:
        return
    wrong = ("Bearer", "Bearer wrong", "key-ann-0123456789abcdef", "Basic key-ann-0123456789abcdef")
    for shown in (
        "",
        *(f"Bearer {key}" for key in expired_keys),
        *(wrong if LONG else (wrong[len(path) % len(wrong)],)),
    ):
        seen = await ask(**({"authorization": shown} if shown else {}))
        assert seen.status_code in (401, 403, 404), (where, shown, seen.status_code)
        assert seen.status_code != 404 or path == "/hooks/x", where
    if method != "GET":
        narrow = await ask(authorization=f"Bearer {reader}")
        own = (401,) if path in ("/hooks/push", "/telegram") else ()  # they use signatures instead of keys
        assert narrow.status_code in (403, 404, 405, *own), (where, narrow.status_code)


@pytest.mark.deadline(60)
async def test_path_tricks_in_urls_are_refused(tmp_path):
    home = Home(tmp_path / "home")
    tricks = ("/../.env", "/%2e%2e/.env", "/v1/sessions/..%2f..%2f.env", "/v1/runs/%00", "//etc/passwd", "/v1/../.env")
    async with ModelServer() as model:
        write_home(home, model)
        async with open_serve(home) as served:
            host, port = served.address.removeprefix("http://").split(":")
            for trick in tricks:
                reader, writer = await asyncio.open_connection(host, int(port))
                head = f"GET {trick} HTTP/1.1\r\nhost: {host}\r\nauthorization: Bearer key-ann-0123456789abcdef\r\nconnection: close\r\n\r\n"
                writer.write(head.encode())
                seen = await reader.read()
                writer.close()
                assert seen.split()[1] in (b"400", b"404"), (trick, seen[:200])
                assert b"key-ann-0123456789abcdef" not in seen and b"root:" not in seen
            assert (await served.get("/health")).status_code == 200
