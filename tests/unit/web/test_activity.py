"""What a conversation has at work, its files and its commands, over HTTP."""

import asyncio
from pathlib import Path
from typing import Any

from alipes.kernel.messages import Message, Text, ToolCall, ToolResult
from alipes.runtime.sandbox.backend import CommandScope
from alipes.testing.scripted_provider import ScriptedProvider
from alipes.tools.shell.background import BackgroundProcesses
from alipes.tools.shell.output import SpillFolder
from tests.unit.agent_harness import play
from tests.unit.web.test_messages import PNG, record, seen
from tests.world.api_harness import ApiHarness, open_api


async def command(api: ApiHarness, text: str, *, session: str = "talk", by: str = "page") -> Any:
    answer = await api.ask("POST", f"/sessions/{session}/commands", {"text": text}, by=by)
    assert answer.status_code == 200, answer.text
    return answer.json()


async def test_the_queue_and_the_plan_of_a_conversation_are_shown(tmp_path: Path):
    go = asyncio.Event()
    async with open_api(tmp_path, play(("One.", go), "Two.")) as api:
        first = await api.begin("first", session="talk")
        async with api.listening(first) as listener:
            await listener.until("text_delta")
            second = await api.begin("second", session="talk", busy="queue")
            session = (await api.ask("GET", "/sessions/talk")).json()
            assert session["status"] == "running"
            await api.house.store.todos.write(session["id"], '[{"id":"1","content":"sweep","status":"in_progress"}]')
            activity = await seen(api, "/sessions/talk/activity")
            assert activity["run"] == first
            assert activity["queue"] == [{"run": second, "text": "second", "held": False}]
            assert activity["todos"] == [{"id": "1", "text": "sweep", "status": "in_progress"}]
            go.set()
            await listener.rest()
        await api.finish(second)
        assert (await seen(api, "/sessions/talk/activity"))["run"] == ""
        assert (await api.ask("GET", "/sessions/talk")).json()["status"] == "idle"


async def test_a_background_process_is_shown_and_stopped(tmp_path: Path):
    async with BackgroundProcesses(SpillFolder(tmp_path / "spill")) as processes:
        async with open_api(tmp_path, ScriptedProvider(), background=processes) as api:
            session = await record(api)
            scope = CommandScope(session=session)
            await processes.start(scope, "echo ready; sleep 60", cwd=str(tmp_path), env={"PATH": "/usr/bin:/bin"})
            (process,) = (await seen(api, "/sessions/talk/activity"))["processes"]
            assert (process["name"], process["running"], process["output"]) == ("p1", True, "ready")
            assert (await api.ask("POST", "/sessions/talk/processes/p9/stop")).status_code == 404
            stopped = (await api.ask("POST", "/sessions/talk/processes/p1/stop")).json()
            assert not stopped["running"]


async def test_a_file_is_uploaded_and_sent_with_a_message(tmp_path: Path):
    async with open_api(tmp_path, ScriptedProvider()) as api:
        headers = {"authorization": "Bearer key-ann-0123456789abcdef"}
        post = api.client.post
        upload = await post("/v1/uploads?name=..%2Fno%00tes.txt", content=b"\xffhello", headers=headers)
        assert upload.status_code == 201, upload.text
        file = upload.json()
        assert (file["name"], file["size"]) == ("no_tes.txt", 6)
        picture = (await post("/v1/uploads?name=a.png", content=PNG, headers=headers)).json()
        assert picture["type"] == "image/png"
        run = await api.begin("see this", session="talk", files=[file["id"], picture["id"]])
        await api.finish(run)
        shown = (await seen(api, "/sessions/talk/messages"))["messages"][0]
        assert shown["text"] == "see this"
        assert [(each["name"], each["details"]) for each in shown["attached"]] == [
            ("no_tes.txt", "text/plain, 6 bytes"),
            ("a.png", f"image/png, {len(PNG)} bytes"),
        ]
        assert [each["type"] for each in shown["images"]] == ["image/png"]
        theirs = await api.ask("POST", "/runs", {"input": "x", "files": [file["id"]]}, by="bob")
        assert (theirs.status_code, theirs.json()["code"]) == (404, "no_upload")
        assert (await api.ask("POST", "/runs", {"input": "x", "files": ["../x"]})).status_code == 404


async def test_an_upload_that_is_too_large_is_refused_with_the_limit(tmp_path: Path):
    async with open_api(tmp_path, ScriptedProvider()) as api:
        headers = {"authorization": "Bearer key-ann-0123456789abcdef"}
        answer = await api.client.post("/v1/uploads", content=bytes(20_000_001), headers=headers)
        assert answer.status_code == 413 and "20000000 bytes" in answer.json()["detail"]


async def test_a_file_that_a_tool_made_is_downloaded_and_no_other(tmp_path: Path):
    made, secret = tmp_path / "report.html", Path("/etc/hostname")
    made.write_text("<script>alert(1)</script>")
    async with open_api(tmp_path, ScriptedProvider()) as api:
        call = ToolCall("c", "write", {})
        result = ToolResult("c", "made", files=(str(made), str(secret)))
        session = await record(api, Message("assistant", (call,)), Message("tool", (result,)))
        _, _, message = (await seen(api, "/sessions/talk/messages"))["messages"]
        first, second = message["results"][0]["files"]
        assert (first["name"], first["size"]) == ("report.html", len(made.read_bytes()))
        got = await api.ask("GET", f"/downloads/{first['id']}")
        assert got.content == made.read_bytes() and got.headers["content-type"] == "application/octet-stream"
        assert got.headers["content-disposition"] == "attachment; filename*=UTF-8''report.html"
        for id in (second["id"], f"{session}-{message['number']}-7", "nonsense", "%00"):
            assert (await api.ask("GET", f"/downloads/{id}")).status_code == 404, id
        assert (await api.ask("GET", f"/downloads/{first['id']}", by="bob")).status_code == 404


async def test_a_command_acts_on_the_conversation_by_the_one_table(tmp_path: Path):
    async with open_api(tmp_path, play("One.", "Two.", "Again.")) as api:
        for text in ("first", "second"):
            await api.finish(await api.begin(text, session="talk", by="page"), by="page")
        undone = await command(api, "/undo")
        assert "Undone" in undone["text"] and "second" in undone["text"]
        retried = await command(api, "/retry")
        await api.finish(retried["runs"][0], by="page")
        titled = await command(api, "/title My talk")
        assert not titled.get("failed")
        assert (await api.ask("GET", "/sessions/talk", by="page")).json()["title"] == "My talk"
        exported = await command(api, "/export")
        assert exported["action"]["type"] == "file" and "first" in exported["action"]["text"]
        unknown = await command(api, "/nonsense")
        assert unknown["failed"] and "Unknown command" in unknown["text"]
        path = await api.ask("POST", "/sessions/talk/commands", {"text": "/tmp is full"}, by="page")
        assert (path.status_code, path.json()["code"]) == (400, "command")


async def test_commands_need_an_admin_and_are_listed_for_everybody(tmp_path: Path):
    async with open_api(tmp_path, ScriptedProvider()) as api:
        await record(api)
        for by in ("ann", "phone"):
            answer = await api.ask("POST", "/sessions/talk/commands", {"text": "/mode all"}, by=by)
            assert (answer.status_code, answer.json()["code"]) == (403, "scope")
        commands = {each["name"]: each for each in (await seen(api, "/commands"))["commands"]}
        described = {"name": "undo", "args": "[N]", "help": "undo the last turn, or the last N"}
        assert commands["undo"] == {**described, "group": "Conversations", "run_once": True, "changes_transcript": True}
        assert commands["stop"]["stops_turn"] and not commands["quit"]["in_chats"]


async def test_the_modes_of_a_conversation_are_changed(tmp_path: Path):
    async with open_api(tmp_path, ScriptedProvider()) as api:
        await record(api)
        changed = await api.ask("PATCH", "/sessions/talk", {"permission_mode": "plan", "effort": "high"})
        assert (changed.json()["permission_mode"], changed.json()["effort"]) == ("plan", "high")
        refused = await api.ask("PATCH", "/sessions/talk", {"permission_mode": "all"})
        assert (refused.status_code, refused.json()["code"]) == (403, "scope")
        back = await api.ask("PATCH", "/sessions/talk", {"permission_mode": "", "effort": ""})
        assert "permission_mode" not in back.json() and "effort" not in back.json()


async def test_the_models_to_choose_from_are_listed_with_prices(tmp_path: Path):
    async with open_api(tmp_path, ScriptedProvider()) as api:
        await record(api)
        await api.ask("PATCH", "/sessions/talk", {"model": "a/c"})
        choices = await seen(api, "/model-choices?session=talk")
        assert (choices["current"], choices["default"]) == ("a/c", "a/b")
        known = {"name": "a/b", "provider": "a", "context": 1000, "input_price": 1.0, "output_price": 2.0}
        assert choices["models"] == [{"name": "a/c", "provider": "a"}, known]


async def test_the_list_of_conversations_shows_origin_preview_and_pages_by_cursor(tmp_path: Path):
    async with open_api(tmp_path, ScriptedProvider()) as api:
        for n in range(5):
            await record(api, Message("assistant", (Text(f"answer {n} " + "x" * 200),)), chat=f"c{n}")
        found, cursor = list[str](), ""
        while True:
            page = await seen(api, f"/sessions?limit=2&cursor={cursor}")
            found += [each["name"] for each in page["sessions"]]
            cursor = page["cursor"]
            if not page["more"]:
                break
        assert found == ["c4", "c3", "c2", "c1", "c0"] and cursor == ""
        first = page["sessions"][0]
        assert first["origin"] == "API · ann" and first["current"]
        assert first["preview"].startswith("answer 0 x") and len(first["preview"]) == 120
        assert (await seen(api, "/sessions?platform=telegram"))["sessions"] == []
        for cursor in ("x", "nan:a", "1.5", ":"):
            assert (await api.ask("GET", f"/sessions?cursor={cursor}")).status_code == 422, cursor
