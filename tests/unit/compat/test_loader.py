"""The door itself: what it imports, what it refuses, and what is left when it is shut."""

import sys
import textwrap

import pytest
from msgspec import structs

from alipes.config.settings import PluginsConfig
from alipes.kernel.errors import PluginError
from alipes.plugins import specs
from alipes.plugins.discovery import DiscoveredPlugin
from alipes.plugins.loader import Plugins
from tests.unit.compat.plugin_harness import TURN_HERE, Act

TOOL = """
    from .tools import handle
    from .deep.words import GREETING

    def register(ctx):
        ctx.register_tool("greet", "greeting", {"type": "object"}, lambda args, **kw: handle(GREETING))
"""
FILES = {
    "tools.py": "def handle(word):\n    from . import later\n    return word + later.END\n",
    "later.py": "END = '!'\n",
    "deep/__init__.py": "",
    "deep/words.py": "from ..later import END\nGREETING = 'hello'\n",
}


async def test_a_folder_is_a_package_whose_relative_imports_work(harness):
    async with harness.plugin(TOOL, files=FILES, name="my-greeter"):
        assert harness.module.__name__ == "hermes_plugins.my_greeter"
        assert await harness.tool("greet").run({}, Act()) == "hello!"
    assert [name for name in sys.modules if name.startswith("hermes_plugins.")] == []


async def test_the_original_names_can_be_imported_while_a_plugin_is_open(harness):
    source = """
    from hermes_constants import get_hermes_home
    from tools.registry import registry
    home = get_hermes_home()
    def register(ctx): ...
    """
    assert "hermes_constants" not in sys.modules
    async with harness.plugin(source):
        assert str(harness.module.home) == str(harness.settings.home)
        assert "hermes_constants" in sys.modules
    assert "hermes_constants" not in sys.modules


async def test_a_tool_registered_at_import_belongs_to_the_plugin(harness):
    source = """
    from tools.registry import registry
    registry.register(name="early", toolset="t", schema={"type": "object"}, handler=lambda args, **kw: "here")
    def register(ctx): ...
    """
    async with harness.plugin(source):
        assert await harness.tool("early").run({}, Act()) == "here"
    assert "early" not in harness.contributions.tools()


async def test_register_may_be_async(harness):
    source = """
    import asyncio
    calls = []
    async def register(ctx):
        await asyncio.sleep(0)
        calls.append(asyncio.get_running_loop().is_running())
    """
    async with harness.plugin(source):
        assert harness.calls == [True]


@pytest.mark.parametrize(
    ("source", "error"),
    [
        ("register = 5", PluginError),
        ("", PluginError),
        ("import no_such_module_anywhere", ModuleNotFoundError),
        ("def register(ctx):\n    raise RuntimeError('mine')", RuntimeError),
        ("def register(:", SyntaxError),
    ],
)
async def test_what_is_wrong_with_a_plugin_is_reported_and_nothing_of_it_stays(harness, source, error):
    with pytest.raises(error):
        async with harness.plugin(source):
            raise AssertionError("opened all the same")
    assert [name for name in sys.modules if name.startswith("hermes_plugins.")] == []
    assert "hermes_constants" not in sys.modules
    assert harness.door.bridge.tools == {}


async def test_a_folder_without_code_is_reported(harness, tmp_path):
    with pytest.raises(PluginError, match=r"has no __init__\.py"):
        async with harness.opened(DiscoveredPlugin("empty", "hermes", tmp_path)):
            raise AssertionError


@pytest.mark.parametrize("entry", ["greeting_package", "greeting_package:register", "greeting_package:Plugin.register"])
async def test_a_package_is_found_by_its_entry_point(harness, tmp_path, monkeypatch, entry):
    (tmp_path / "greeting_package.py").write_text(
        textwrap.dedent("""
        def register(ctx):
            ctx.register_tool("packaged", "t", {"type": "object"}, lambda args: "from the package")
        class Plugin:
            register = staticmethod(register)
        """)
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(sys.modules, "greeting_package", raising=False)
    async with harness.opened(DiscoveredPlugin("packaged", "hermes", entry=entry)):
        assert await harness.tool("packaged").run({}, Act()) == "from the package"


async def test_two_versions_of_one_plugin_live_side_by_side_until_the_old_one_goes(harness):
    source = """
    from .words import WORD
    def register(ctx):
        ctx.register_hook("pre_llm_call", recall)
    def recall(**kw):
        from .words import WORD
        return WORD
    """
    old = harness.plugin(source, files={"words.py": "WORD = 'old'\n"})
    await old.__aenter__()
    running = harness.dispatcher
    harness.hooks.remove(harness.owner)
    async with harness.plugin(source, files={"words.py": "WORD = 'newer'\n"}):
        assert await harness.dispatcher.filter(specs.turn_context, "", turn=TURN_HERE) == "newer"
        assert await running.filter(specs.turn_context, "", turn=TURN_HERE) == "old"
        assert await harness.dispatcher.filter(specs.turn_context, "", turn=TURN_HERE) == "newer"
        await old.__aexit__(None, None, None)
        assert await harness.dispatcher.filter(specs.turn_context, "", turn=TURN_HERE) == "newer"
        assert "hermes_constants" in sys.modules


async def test_the_loader_opens_reloads_and_lists_it(harness):
    folder = harness.settings.home / "plugins" / "greeter"
    folder.mkdir(parents=True)
    (folder / "plugin.yaml").write_text("name: greeter\nversion: '2.0'\ndescription: Greets.\n")
    code = """
    def register(ctx):
        ctx.register_tool("greet", "greeting", {"type": "object"}, lambda args: "%s")
        ctx.register_hook("on_session_start", print)
    """
    (folder / "__init__.py").write_text(textwrap.dedent(code % "one"))
    settings = structs.replace(harness.settings, plugins=PluginsConfig(enabled=("greeter",)))
    doors = {"hermes": lambda: harness.door}
    plugins = Plugins(settings, harness.hooks, harness.contributions, host=harness.host, loaders=doors)
    async with plugins.open():
        (facts,) = plugins.statuses()
        assert (facts.name, facts.state, facts.version, facts.why) == ("greeter", "on", "2.0", "")
        assert (facts.tools, facts.hooks) == (("greet",), ("on_session_start",))
        assert await harness.tool("greet").run({}, Act()) == "one"
        (folder / "__init__.py").write_text(textwrap.dedent(code % "the second"))
        await plugins.reload("greeter")
        assert await harness.tool("greet").run({}, Act()) == "the second"
        (folder / "__init__.py").write_text("")
        with pytest.raises(PluginError, match="register"):
            await plugins.reload("greeter")
        assert await harness.tool("greet").run({}, Act()) == "the second"
    assert harness.door.bridge.tools == {}


async def test_shell_and_file_hooks_come_through_the_same_door(harness):
    folder = harness.settings.home / "hooks" / "log"
    folder.mkdir(parents=True)
    (folder / "HOOK.yaml").write_text("name: log\nevents: [session:start]\n")
    (folder / "handler.py").write_text("def handle(event_type, context): ...\n")
    async with harness.opened(DiscoveredPlugin("log", "file-hook", folder)) as context:
        assert context.registered
    async with harness.opened(DiscoveredPlugin("shell-hooks", "shell-hooks")):
        pass
