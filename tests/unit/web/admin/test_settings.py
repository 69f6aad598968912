"""Settings over HTTP: values with their origins, changes that are validated and never overwrite those of others."""

import asyncio

import pytest

from tests.world.admin_harness import open_admin

CONFIG = "# mine\n[serve]\nport = 9000  # not 8742\n"
SECRET = "sk-ant-very-secret-0123456789"


async def test_settings_are_listed_with_value_default_and_origin(tmp_path):
    async with open_admin(tmp_path / "home", CONFIG, environ={"ALIPES_MAX_STEPS": "7"}) as api:
        found = await api.get("/settings")
    settings = {each["key"]: each for each in found["settings"]}
    port = settings["serve.port"]
    assert (port["value"], port["default"], port["source"], port["line"]) == (9000, 8742, "file", 4)
    assert (port["type"], port["min"], port["max"]) == ("whole", 1, 65535)
    assert port["origin"].endswith("config.toml:4") and port["restart"] is True
    steps = settings["max_steps"]
    assert (steps["value"], steps["source"], steps["fixed"]) == (7, "variable", True)
    assert settings["log_level"]["type"] == "choice" and "debug" in settings["log_level"]["choices"]
    assert settings["terminal.busy"]["restart"] is False
    assert found["file"].endswith("config.toml") and found["base"] and found["problems"] == []


async def test_the_settings_of_a_section_are_listed(tmp_path):
    async with open_admin(tmp_path / "home") as api:
        found = (await api.get("/settings?key=serve"))["settings"]
        assert found and all(each["key"].startswith("serve.") for each in found)
        assert "Unknown setting" in (await api.get("/settings?key=serv", status=404))["detail"]


async def test_one_setting_is_explained(tmp_path):
    async with open_admin(tmp_path / "home", CONFIG) as api:
        port = await api.get("/settings/serve.port")
        assert "serve.port = 9000" in port["why"] and "config.toml:4" in port["why"] and "8742" in port["why"]
        assert "serve.port" in (await api.get("/settings/serve.prt", status=404))["detail"]
        assert "section" in (await api.get("/settings/serve", status=404))["detail"]


async def test_a_change_keeps_comments_and_is_in_the_file(tmp_path):
    async with open_admin(tmp_path / "home", CONFIG) as api:
        base = (await api.get("/settings"))["base"]
        done = await api.call(
            "PATCH", "/settings", {"changes": {"serve.port": 9001, "terminal.busy": "queue"}, "base": base}
        )
        text = (tmp_path / "home" / "config.toml").read_text()
        assert (await api.get("/settings/serve.port"))["value"] == 9001
    assert done["restart"] is True and done["written"] == ["serve.port", "terminal.busy"] and done["base"] != base
    assert "# mine" in text and "port = 9001  # not 8742" in text


async def test_null_removes_a_setting_and_is_no_error_where_none_is_set(tmp_path):
    async with open_admin(tmp_path / "home", CONFIG) as api:
        done = await api.call("PATCH", "/settings", {"changes": {"serve.port": None, "max_steps": None}})
        assert done["written"] == ["serve.port"]
        assert (await api.get("/settings/serve.port"))["source"] == "default"


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"serve.port": 70000}, "1 to 65535"),
        ({"serve.port": "many"}, "serve.port"),
        ({"log_level": "loud"}, "debug"),
        ({"serve.prot": 1}, "Did you mean port?"),
        ({"terminal.busy": "queue", "serve.port": -1}, "Nothing was changed"),
        ({"a..b": 1}, "use dots"),
        ({"no.such": None}, "Unknown setting"),
        ({"providers.x.headers": {"Authorization": "Bearer abc"}}, ".env"),
        ({"providers.x.body": {"a": None}}, "providers.x"),
    ],
)
async def test_an_invalid_change_is_refused_and_nothing_is_written(tmp_path, changes, words):
    async with open_admin(tmp_path / "home", CONFIG) as api:
        before = (tmp_path / "home" / "config.toml").read_bytes()
        refused = await api.call("PATCH", "/settings", {"changes": changes}, status=422)
        assert words in refused["detail"]
        assert (tmp_path / "home" / "config.toml").read_bytes() == before


async def test_a_change_made_meanwhile_is_not_overwritten(tmp_path):
    async with open_admin(tmp_path / "home", CONFIG) as api:
        base, file = (await api.get("/settings"))["base"], tmp_path / "home" / "config.toml"
        file.write_text(file.read_text() + 'host = "127.0.0.2"\n')
        refused = await api.call("PATCH", "/settings", {"changes": {"serve.port": 9001}, "base": base}, status=409)
        assert refused["code"] == "changed" and "127.0.0.2" in file.read_text()


async def test_of_two_changes_at_once_with_the_same_base_one_is_refused(tmp_path):
    async with open_admin(tmp_path / "home", CONFIG) as api:
        base = (await api.get("/settings"))["base"]
        asks = [
            api.ask("PATCH", "/settings", {"changes": {"serve.port": 9001 + n}, "base": base}, by="root")
            for n in range(2)
        ]
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(ask) for ask in asks]
        assert sorted(task.result().status_code for task in tasks) == [200, 409]


async def test_secrets_never_appear(tmp_path):
    config = (
        '[providers.mine]\napi = "openai-chat"\nbase_url = "http://127.0.0.1:1/v1"\nkey_env = "MINE_KEY"\n'
        '[plugins.entries.demo]\nurl = "https://me:hunter22@example.org"\npassword = "${DEMO_PASSWORD}"\n'
        '[mcp.servers.files]\ncommand = "true"\nenabled = false\nenv = { WORD = "plain-but-private" }\n'
    )
    async with open_admin(tmp_path / "home", config, env=f"MINE_KEY={SECRET}\nDEMO_PASSWORD={SECRET}2\n") as api:
        for by in ("root", "page"):
            answer = await api.ask("GET", "/settings", by=by)
            assert answer.status_code == 200
            for secret in (SECRET, "hunter22", "plain-but-private"):
                assert secret not in answer.text
            for key in ("plugins.entries.demo", "mcp.servers.files.env"):
                assert "hunter22" not in (found := await api.ask("GET", f"/settings/{key}", by=by)).text
                assert found.status_code == 200 and "private" not in found.text
        shown = answer.json()
    entry = next(each for each in shown["settings"] if each["key"] == "plugins.entries.demo")
    assert entry["value"] == {"url": "https://***@example.org", "password": "${DEMO_PASSWORD}"}
    key_env = next(each for each in shown["settings"] if each["key"] == "providers.mine.key_env")
    assert (key_env["secret"], key_env["set"]) == ("MINE_KEY", True)
    assert {"name": "MINE_KEY", "set": True} in [
        {"name": each["name"], "set": each["set"]} for each in shown["secrets"]
    ]


async def test_a_masked_value_is_not_written_back(tmp_path):
    async with open_admin(
        tmp_path / "home", '[plugins.entries.demo]\nurl = "https://me:hunter22@example.org"\n'
    ) as api:
        value = (await api.get("/settings/plugins.entries.demo"))["value"]
        refused = await api.call("PATCH", "/settings", {"changes": {"plugins.entries.demo": value}}, status=422)
        assert "hides a secret" in refused["detail"]
        assert "hunter22" in (tmp_path / "home" / "config.toml").read_text()


async def test_a_secret_is_saved_in_a_private_file_and_removed(tmp_path):
    async with open_admin(tmp_path / "home") as api:
        done = await api.call("PATCH", "/settings/secrets", {"name": "MY_KEY", "value": SECRET})
        env = tmp_path / "home" / ".env"
        assert done["restart"] is True and SECRET not in str(done)
        assert SECRET in env.read_text() and env.stat().st_mode & 0o077 == 0
        assert SECRET not in (await api.ask("GET", "/settings", by="root")).text
        assert api.app.secrets(f"x {SECRET}") != f"x {SECRET}"
        await api.call("PATCH", "/settings/secrets", {"name": "MY_KEY", "value": None})
        assert SECRET not in env.read_text()


@pytest.mark.parametrize(
    "body",
    [
        {"name": "a b", "value": "x"},
        {"name": "ALIPES_HOME", "value": "/x"},
        {"name": "NONE", "value": None},
        {"name": "A_KEY", "value": "a\nb"},
        {"name": "ALIPES_SERVE_PORT", "value": "1"},
    ],
)
async def test_an_invalid_secret_is_refused(tmp_path, body):
    async with open_admin(tmp_path / "home") as api:
        await api.call("PATCH", "/settings/secrets", body, status=422)


async def test_a_broken_file_is_named(tmp_path):
    async with open_admin(tmp_path / "home") as api:
        (tmp_path / "home" / "config.toml").write_text("port = = 1\n")
        assert "config.toml:1" in (await api.get("/settings", status=409))["detail"]
        await api.call("PATCH", "/settings", {"changes": {"serve.port": 1}}, status=409)


async def test_a_reading_browser_may_not_change_settings(tmp_path):
    async with open_admin(tmp_path / "home") as api:
        for path, body in (
            ("/settings", {"changes": {"serve.port": 1}}),
            ("/settings/secrets", {"name": "A", "value": "b"}),
        ):
            await api.call("PATCH", path, body, by="page", status=403)
        for by in ("ann", "reader"):
            await api.get("/settings", by=by, status=403)
