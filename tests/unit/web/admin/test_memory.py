"""The memory over HTTP."""

import pytest

from alipes.features.memory.change import OWNER, MemoryEdit, MemoryOrigin
from alipes.features.memory.feature import MemoryFeature
from tests.world.admin_harness import open_admin

ANN = "people/telegram/7"


async def add(api, text, scope=OWNER):
    return await api.app.features.get(MemoryFeature).service.memory.change(
        scope, MemoryEdit("add", "memory", text), MemoryOrigin("agent", "s1", "t1")
    )


async def read(api, query="", by="root"):
    return (await api.get(f"/memory{query}", by=by))["targets"][0]


async def test_notes_are_shown_with_their_size_and_entries(tmp_path):
    async with open_admin(tmp_path / "home") as api:
        await add(api, "the <i>build</i> needs make")
        await add(api, "tests run with pytest")
        found = await read(api, by="page")
    assert found["target"] == "memory" and found["entries"] == ["the <i>build</i> needs make", "tests run with pytest"]
    assert found["used"] == len(found["text"]) < found["limit"]


async def test_a_whole_file_is_replaced_and_the_change_can_be_undone(tmp_path):
    async with open_admin(tmp_path / "home") as api:
        await add(api, "old")
        base = (await read(api))["base"]
        changed = await api.call(
            "PATCH", "/memory", {"target": "memory", "text": "- new one\n- new two\n", "base": base}
        )
        assert changed["entries"] == ["new one", "new two"] and changed["base"] != base
        latest, first = (await api.get("/memory/versions"))["versions"]
        assert latest["author"] == "person" and "+- new one" in latest["diff"] and first["session"] == "s1"
        undone = await api.call("POST", "/memory/undo", {"version": latest["number"]})
        assert "undo" not in undone["what"] and (await read(api))["entries"] == ["old"]
        again = await api.call("POST", "/memory/undo", {"version": latest["number"]}, status=409)
        assert "undone already" in again["detail"]
        assert "no change 99" in (await api.call("POST", "/memory/undo", {"version": 99}, status=409))["detail"]


async def test_a_change_made_meanwhile_is_not_overwritten(tmp_path):
    async with open_admin(tmp_path / "home") as api:
        base = (await read(api))["base"]
        await add(api, "by the agent")
        refused = await api.call("PATCH", "/memory", {"target": "memory", "text": "mine", "base": base}, status=409)
        assert refused["code"] == "changed" and (await read(api))["entries"] == ["by the agent"]


@pytest.mark.parametrize(
    ("text", "words"), [("the key is sk-ant-REDACTED", "secret"), ("a\u202eb", "invisible"), ("long " * 20_000, "full")]
)
async def test_a_text_that_may_not_be_saved_is_refused(tmp_path, text, words):
    async with open_admin(tmp_path / "home") as api:
        base = (await read(api))["base"]
        refused = await api.call("PATCH", "/memory", {"target": "memory", "text": text, "base": base}, status=422)
        assert words in refused["detail"] and (await read(api))["text"] == ""


async def test_a_secret_in_a_file_is_masked_and_the_file_is_not_replaced(tmp_path):
    secret = "sk-mine-0123456789abcdefgh"
    async with open_admin(tmp_path / "home", env=f"OPENAI_API_KEY={secret}\n") as api:
        file = tmp_path / "home" / "memory" / "MEMORY.md"
        file.parent.mkdir(exist_ok=True)
        file.write_text(f"- the key is {secret}\n")
        shown = await read(api)
        assert secret not in str(shown) and secret not in str(await api.get("/memory/versions"))
        body = {"target": "memory", "text": shown["text"], "base": shown["base"]}
        assert "secret" in (await api.call("PATCH", "/memory", body, status=422))["detail"]
        assert secret in file.read_text()


async def test_notes_of_others_are_listed_and_changed_by_their_scope(tmp_path):
    async with open_admin(tmp_path / "home") as api:
        await add(api, "Ann likes tea", ANN)
        (person,) = (await api.get("/memory"))["people"]
        assert (person["scope"], person["label"]) == (ANN, "7 (telegram)")
        found = await read(api, f"?person={ANN}")
        assert found["entries"] == ["Ann likes tea"]
        body = {"target": "memory", "text": "", "base": found["base"], "person": ANN}
        assert (await api.call("PATCH", "/memory", body))["entries"] == []
        assert (await api.get("/memory?person=people/x/../../y", status=404))["code"] == "no_person"


async def test_only_an_admin_may_change_notes(tmp_path):
    async with open_admin(tmp_path / "home") as api:
        for by in ("page", "ann", "reader"):
            await api.call("PATCH", "/memory", {"target": "memory", "text": "x", "base": ""}, by=by, status=403)
            await api.get("/memory", by=by, status=200 if by == "page" else 403)
