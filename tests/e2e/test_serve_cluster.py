"""`alipes serve` as a worker on PostgreSQL: roles, /ready, /metrics, doctor, store, restore."""

import os
import re
from contextlib import AsyncExitStack, asynccontextmanager

import httpx2
import msgspec
import psycopg
import pytest

from tests.e2e.program import Home
from tests.e2e.service import open_serve
from tests.world.api_harness import ApiClient
from tests.world.environment import LIMIT_S
from tests.world.model_server import Call, Calls, ModelServer, Say
from tests.world.plugin_sources import native
from tests.world.postgres_server import postgres_schema, postgres_server

pytestmark = pytest.mark.deadline(120)
KEY = "key-ann-0123456789abcdef"
WAIT = """INSERT INTO sessions (id, key, platform, address, created, updated) VALUES ('s', 'k', 'cli', '', 0, 0);
    INSERT INTO turns (id, key, session_id, platform, inbound_id, inbound, created, held)
        VALUES ('t', 'k', 's', 'cli', '1', '{}', extract(epoch FROM now()) - 60, 0);
    INSERT INTO leases (key, session_id) VALUES ('k', 's')"""


@pytest.fixture(scope="module", autouse=True)
def server():
    return postgres_server()


@pytest.fixture
def url():
    with postgres_schema() as address:
        yield address


PLUGIN = '[plugins]\nenabled = ["offer"]\n'
OFFER = """
from alipes.plugin import ToolOutput, tool

@tool(effect="read", media=True)
async def offer(path: str) -> ToolOutput:
    \"\"\"Offer a file.\"\"\"
    return ToolOutput("Made.", files=(path,))
"""


def make_home(folder, name, model, url, roles=("listen", "work", "web"), cluster="", **settings):
    """`cluster`: the setting `cluster.folder`. Requests to the model name the worker in a header."""
    home = Home(folder / name / "home")
    home.path.parent.mkdir()
    home.use(model, store=url, **settings)
    text = (home.path / "config.toml").read_text() + f'headers = {{ x-worker = "{name}" }}\n'
    listed = ", ".join(f'"{role}"' for role in roles)
    (home.path / "config.toml").write_text(f'{text}[cluster]\nroles = [{listed}]\nfolder = "{cluster}"\n{PLUGIN}')
    native(home.path / "plugins" / "offer", "offer", code=OFFER)
    (home.path / ".env").write_text(f"ALIPES_API_KEY={KEY}\n")
    (home.path / ".env").chmod(0o600)
    return home


@asynccontextmanager
async def open_pair(folder, model, url, **settings):
    """API clients of two workers with one shared folder."""
    (folder / "shared").mkdir()
    homes = [make_home(folder, name, model, url, cluster=folder / "shared", **settings) for name in ("one", "two")]
    async with AsyncExitStack() as stack:
        clients = []
        for home in homes:
            served = await stack.enter_async_context(open_serve(home))
            client = httpx2.AsyncClient(base_url=served.address, trust_env=False, timeout=LIMIT_S)
            clients.append(ApiClient(await stack.enter_async_context(client)))
        yield clients


def is_answer(request):
    """True for a request of a turn, not of a title or of learning."""
    return bool(request.body.get("tools"))


async def test_a_worker_shows_its_store_and_roles_and_the_cluster(tmp_path, url):
    async with ModelServer() as model:
        one, two = make_home(tmp_path, "one", model, url), make_home(tmp_path, "two", model, url, ("web",))
        async with open_serve(one) as first, open_serve(two) as second:
            ready = (await first.get("/ready")).json()
            assert ready["store"] == "postgresql", ready
            assert ready["status"] == "ready", ready["because"]
            assert ready["roles"] == ["listen", "web", "work"] and ready["worker"]
            assert (await second.get("/ready")).json()["roles"] == ["web"]
            assert await second.metric('alipes_cluster_workers{role="work"}') == 1
            assert await second.metric('alipes_cluster_workers{role="web"}') == 2
            assert await second.metric(f'alipes_cluster_sessions{{worker="{ready["worker"]}"}}') == 0
            name = f'alipes_cluster_leader{{name="schedules",worker="{ready["worker"]}"}}'
            assert await second.metric(name) == 1
            assert await first.metric("alipes_store_commits_total") > 0
            done = await one.run("doctor", "--json")
            findings = {each["about"]: each for each in msgspec.json.decode(done.out)["findings"]}
            assert findings["database"]["state"] == "ok" and "PostgreSQL" in findings["database"]["says"]
            assert findings["workers"]["says"].startswith("2: ")
            assert "cluster.folder is not set" in findings["folder"]["says"]
            shown = await one.run("store")
            assert "workers    " + ready["worker"] in shown.out and "schema " in shown.out
            assert await first.left() == 0 and await second.left() == 0


async def test_a_note_saved_at_one_worker_is_in_the_prompt_of_a_new_conversation_at_another(tmp_path, url):
    note = "The bakery opens at six."
    save = Calls((Call("memory", {"action": "add", "target": "memory", "content": note}),))

    def answer(body):
        asked = body["messages"][-1]
        return save if asked["role"] == "user" and "remember" in str(asked["content"]) else Say("Fine.")

    async with ModelServer(answer) as model, open_pair(tmp_path, model, url) as (one, two):
        done = await one.finish(await one.begin("remember when the bakery opens", session="first"))
        assert done["status"] == "answered", done
        saved_by = next(each for each in model.requests if is_answer(each)).headers["x-worker"]
        assert (tmp_path / "shared" / "memory").is_dir() and not (tmp_path / "one" / "home" / "memory").exists()
        other = two if saved_by == "one" else one
        for number in range(20):  # any worker may take the conversation
            done = await other.finish(await other.begin("hello", session=f"next-{number}"))
            assert done["status"] == "answered", done
            request = [each for each in model.requests if is_answer(each)][-1]
            assert note in str(request.body["messages"][0])
            if request.headers["x-worker"] != saved_by:
                return
        raise AssertionError("the other worker took no conversation")


async def test_files_of_a_conversation_can_be_downloaded_from_any_worker(tmp_path, url):
    work, generated = tmp_path / "work", tmp_path / "shared" / "outgoing" / "picture.png"
    work.mkdir()
    (work / "report.txt").write_text("made in the workspace")
    calls = Calls(tuple(Call("offer", {"path": str(path)}) for path in (work / "report.txt", generated)))

    def answer(body):
        return calls if body.get("tools") and body["messages"][-1]["role"] == "user" else Say("Here they are.")

    async with ModelServer(answer) as model, open_pair(tmp_path, model, url, workdir=str(work)) as (one, two):
        generated.write_bytes(b"generated for a chat")
        run = await one.begin("send them", session="talk")
        assert (await one.finish(run))["status"] == "answered"
        messages = (await two.ask("GET", "/sessions/talk/messages")).json()["messages"]
        files = [
            file for message in messages for result in message.get("results", ()) for file in result.get("files", ())
        ]
        assert [(file["name"], file["size"]) for file in files] == [("report.txt", 21), ("picture.png", 20)]
        for worker in (one, two):
            got = [(await worker.ask("GET", f"/downloads/{file['id']}")).content for file in files]
            assert got == [b"made in the workspace", b"generated for a chat"]
            other = files[1]["id"].rpartition("-")[0] + "-7"
            assert (await worker.ask("GET", f"/downloads/{other}")).status_code == 404
            assert (await worker.ask("GET", f"/downloads/{files[0]['id']}", by="bob")).status_code == 401


async def test_an_upload_at_one_worker_is_read_by_a_run_that_another_one_accepted(tmp_path, url):
    def answer(body):
        asked = body["messages"][-1]
        if not body.get("tools") or asked["role"] != "user":
            return Say("Read.")
        (path,) = re.findall(r"saved at (\S+notes\.txt)", str(asked["content"]))
        return Calls((Call("read_file", {"path": path}),))

    async with ModelServer(answer) as model, open_pair(tmp_path, model, url) as (one, two):
        headers = {"authorization": f"Bearer {KEY}"}
        for first, second in ((one, two), (two, one)):
            upload = await first.client.post("/v1/uploads?name=notes.txt", content=b"six o'clock", headers=headers)
            assert upload.status_code == 201, upload.text
            run = await second.begin("see this", session=os.urandom(4).hex(), files=[upload.json()["id"]])
            assert (await second.finish(run))["status"] == "answered"
            last = [each for each in model.requests if is_answer(each)][-1]
            assert "six o'clock" in str(last.body["messages"][-1])


async def test_a_worker_whose_shared_folder_is_missing_does_not_start_and_says_why(tmp_path, url):
    async with ModelServer() as model:
        home = make_home(tmp_path, "one", model, url, cluster=tmp_path / "gone")
        done = await home.run("serve", "--port", "0")
        assert done.status == 2 and f"cluster.folder: {tmp_path / 'gone'} is not a directory" in done.err


async def test_a_worker_without_the_role_web_answers_status_only(tmp_path, url):
    async with ModelServer() as model:
        async with open_serve(make_home(tmp_path, "one", model, url, ("work",))) as served:
            statuses = {path: (await served.get(path)).status_code for path in ("/", "/v1/key", "/health", "/metrics")}
            assert statuses == {"/": 404, "/v1/key": 404, "/health": 200, "/metrics": 200}
            assert (await served.get("/ready")).json()["roles"] == ["work"]


async def test_a_full_cluster_answers_503_with_retry_after(tmp_path, url):
    async with ModelServer() as model:
        home = make_home(tmp_path, "one", model, url, ("web",))
        async with open_serve(home) as served:
            with psycopg.connect(url, autocommit=True) as db:
                db.execute(WAIT)
            async with httpx2.AsyncClient(base_url=served.address, trust_env=False) as client:
                headers = {"authorization": f"Bearer {KEY}"}
                answer = await client.post("/v1/runs", json={"input": "hello"}, headers=headers)
            assert (answer.status_code, answer.json()["code"]) == (503, "cluster_full")
            assert int(answer.headers["retry-after"]) > 0
            assert await served.metric("alipes_cluster_full") == 1
            assert await served.metric("alipes_cluster_waiting_sessions") == 1


async def test_restore_refuses_a_home_on_postgresql_and_says_what_to_do(tmp_path, url):
    async with ModelServer() as model:
        home, other = make_home(tmp_path, "one", model, url), Home(tmp_path / "other")
        other.use(model)
        assert (await other.run("backup", str(tmp_path / "kept"))).status == 0
        done = await home.run("restore", str(tmp_path / "kept"), "--force")
        assert done.status == 2 and "alipes store move" in done.err
