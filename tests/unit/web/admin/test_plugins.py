"""Plugins over HTTP."""

import pytest

from tests.world.admin_harness import open_admin
from tests.world.plugin_sources import NATIVE, native

BROKEN = "import no_such_module_here\n"
pytestmark = pytest.mark.deadline(60)


def install(tmp_path, code=NATIVE):
    native(tmp_path / "home" / "plugins" / "ways", code=code)


async def find(api, by="root"):
    (found,) = (await api.get("/plugins", by=by))["plugins"]
    return found


async def test_a_plugin_that_is_not_enabled_is_listed_with_what_it_adds(tmp_path):
    install(tmp_path, NATIVE + "\nimport socket\nsocket.create_connection\n")
    async with open_admin(tmp_path / "home") as api:
        found = await find(api, by="page")
    assert (found["name"], found["state"], found["enabled"], found["version"]) == ("ways", "disabled", False, "1.0")
    assert found["why"] == "not in plugins.enabled" and found["adds"]["tools"]
    assert any(each.startswith("network") for each in found["asks"])


async def test_a_plugin_is_enabled_reloaded_and_disabled(tmp_path):
    install(tmp_path)
    async with open_admin(tmp_path / "home") as api:
        done = await api.call("POST", "/plugins/ways/enable")
        assert done["done"] == "ways is enabled and loaded." and done["plugin"]["state"] == "on"
        assert 'enabled = ["ways"]' in (tmp_path / "home" / "config.toml").read_text()
        assert (await api.call("POST", "/plugins/ways/reload"))["done"].startswith("ways was reloaded")
        assert (await api.call("POST", "/plugins/ways/forgive"))["plugin"].get("strikes", 0) == 0
        assert (await api.call("POST", "/plugins/ways/disable"))["plugin"]["state"] == "disabled"
        refused = await api.call("POST", "/plugins/ways/forgive", status=409)
        assert "not loaded" in refused["detail"]


async def test_a_broken_plugin_is_refused_with_the_reason(tmp_path):
    install(tmp_path, BROKEN)
    async with open_admin(tmp_path / "home") as api:
        refused = await api.call("POST", "/plugins/ways/enable", status=409)
        assert "no_such_module_here" in refused["detail"]
        assert "enabled" not in (tmp_path / "home" / "config.toml").read_text()


async def test_an_unknown_plugin_gets_a_suggestion(tmp_path):
    install(tmp_path)
    async with open_admin(tmp_path / "home") as api:
        for act in ("enable", "disable", "reload", "forgive", "doctor"):
            assert "ways" in (await api.call("POST", f"/plugins/way/{act}", status=404))["detail"]


async def test_a_plugin_is_checked_in_a_process_of_its_own(tmp_path):
    install(tmp_path, BROKEN)
    async with open_admin(
        tmp_path / "home", environ={"PATH": "/usr/bin:/bin", "ALIPES_TEST_PROVIDER": "scripted_provider"}
    ) as api:
        checks = (await api.call("POST", "/plugins/ways/doctor"))["checks"]
    assert any(each["status"] == "error" and "no_such_module_here" in each["text"] for each in checks)


async def test_only_an_admin_may_change_plugins(tmp_path):
    install(tmp_path)
    async with open_admin(tmp_path / "home") as api:
        for by in ("page", "ann", "reader"):
            await api.call("POST", "/plugins/ways/enable", by=by, status=403)
            await api.get("/plugins", by=by, status=200 if by == "page" else 403)


async def test_a_plugin_is_looked_at_installed_enabled_and_removed(tmp_path):
    source = native(tmp_path / "source")
    async with open_admin(tmp_path / "home") as api:
        offer = await api.call("POST", "/plugins/look", {"source": str(source)})
        assert (offer["name"], offer["version"], offer["problem"]) == ("ways", "1.0", "")
        assert ["tools", "look_up"] in offer["details"]
        assert (await api.get("/plugins"))["plugins"] == []
        body = {"source": str(source), "sha256": offer["sha256"]}
        done = await api.call("POST", "/plugins", body, status=201)
        assert done["plugin"]["state"] == "disabled"
        again = await api.call("POST", "/plugins/look", {"source": str(source)}, status=409)
        assert "already" in again["detail"]
        assert (await api.call("POST", "/plugins/ways/enable"))["plugin"]["state"] == "on"
        await api.call("DELETE", "/plugins/ways", status=204)
        assert (await api.get("/plugins"))["plugins"] == []
    assert not (tmp_path / "home" / "plugins" / "ways").exists()


async def test_a_plugin_that_changed_since_it_was_looked_at_is_not_installed(tmp_path):
    source = native(tmp_path / "source")
    async with open_admin(tmp_path / "home") as api:
        offer = await api.call("POST", "/plugins/look", {"source": str(source)})
        (source / "__init__.py").write_text("import os\n")
        body = {"source": str(source), "sha256": offer["sha256"]}
        assert "look at it again" in (await api.call("POST", "/plugins", body, status=409))["detail"]
        assert (await api.get("/plugins"))["plugins"] == []


async def test_a_source_without_a_plugin_says_so_and_only_an_admin_installs(tmp_path):
    (tmp_path / "empty").mkdir()
    async with open_admin(tmp_path / "home") as api:
        refused = await api.call("POST", "/plugins/look", {"source": str(tmp_path / "empty")}, status=409)
        assert "empty" in refused["detail"] or "plugin" in refused["detail"]
        for by in ("page", "ann", "reader"):
            await api.call("POST", "/plugins/look", {"source": "x"}, by=by, status=403)
            await api.call("DELETE", "/plugins/ways", by=by, status=403)
