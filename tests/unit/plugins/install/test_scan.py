"""The static scan of plugin code."""

from textwrap import dedent

import pytest

from alipes.compat.hermes.modules.install import NAMES
from alipes.plugins.discovery import is_hermes_name
from alipes.plugins.install.code_check import missing_modules
from alipes.plugins.install.install_dir import list_files
from alipes.plugins.install.scan import CodeScan, is_supported, scan_code


@pytest.fixture
def read(tmp_path):
    def read(code: str = "", **files: str) -> CodeScan:
        for name, text in {"__init__": code, **files}.items():
            file = tmp_path / f"{name.replace('__of__', '/')}.py"
            file.parent.mkdir(exist_ok=True)
            file.write_text(dedent(text))
        return scan_code(tmp_path, [tmp_path / path for path in list_files(tmp_path)])

    return read


def test_nothing_is_run(read, tmp_path):
    found = read(f"open({str(tmp_path / 'ran')!r}, 'w')\nraise SystemExit('it ran')")
    assert not (tmp_path / "ran").exists() and found.adds == {}


def test_additions_of_a_native_plugin_are_found(read):
    found = read(
        """
        from alipes.plugin import Context, tool

        @tool(effect="read")
        async def look(where: str) -> str: ...

        @tool(name="go_there")
        async def go(where: str) -> str: ...

        async def turn_ended(ending): ...
        async def no_hook_of_ours(x): ...

        async def setup(ctx: Context) -> None:
            ctx.command("travel", travel, help="...")
            ctx.cli("travel", "help", prepare)
            ctx.skill("packing", "packing.md")
            ctx.provide("platform", "pigeon", object())
            ctx.hook(watch, name="after_tool")
            ctx.tool(made)
        """
    )
    assert {kind: list(names) for kind, names in found.adds.items()} == {
        "tools": ["look", "go_there", "made"],
        "hooks": ["turn_ended", "after_tool"],
        "commands": ["travel"],
        "programs": ["travel"],
        "skills": ["packing"],
        "provides": ["platform pigeon"],
    }


def test_additions_of_a_hermes_plugin_are_found_in_all_files_and_with_computed_names(read):
    found = read(
        """
        from .tools import more
        def register(ctx):
            ctx.register_tool(name="find", toolset="x", schema={}, handler=f)
            ctx.register_hook("pre_tool_call", g)
            for name in names():
                ctx.register_command(f"do-{name}", h)
            ctx.register_platform("irc2", "IRC", factory, check)
            ctx.register_memory_provider(Memory())
            more(ctx)
        """,
        tools="def more(ctx):\n    ctx.register_cli_command('find', 'help', setup)\n",
    )
    assert list(found.adds["tools"]) == ["find"] and list(found.adds["hooks"]) == ["pre_tool_call"]
    assert list(found.adds["commands"]) == ["…"] and list(found.adds["programs"]) == ["find"]
    assert list(found.adds["provides"]) == ["platform irc2", "memory provider"]


def test_powers_are_named_with_their_places(read):
    found = read(
        """
        import subprocess as sp, os
        from asyncio import create_subprocess_exec as spawn

        async def f():
            import httpx
            await spawn("ls")
            os.system("ls")
            eval("1")
        """,
        client="import urllib.request\nfrom ctypes import CDLL\n",
    )
    assert found.powers == {
        "processes": {
            "subprocess": ["__init__.py:2"],
            "asyncio.create_subprocess_exec": ["__init__.py:7"],
            "os.system": ["__init__.py:8"],
        },
        "network": {"httpx": ["__init__.py:6"], "urllib.request": ["client.py:1"]},
        "made code": {"eval": ["__init__.py:9"]},
        "native code": {"ctypes": ["client.py:2"]},
    }


def test_an_ordinary_plugin_has_no_powers(read):
    assert read("import json, re, asyncio\nfrom urllib.parse import quote\nx = json.dumps({})").powers == {}


def test_variables_are_found_and_reading_the_whole_environment_is_reported(read):
    found = read(
        """
        import os
        from os import environ
        from hermes_cli.config import get_env_value
        a = os.environ["A"]
        b = environ.get("B", "")
        c = os.getenv("C")
        d = get_env_value("D")
        everything = dict(os.environ)
        """
    )
    assert list(found.variables) == ["A", "B", "C", "D"]
    assert found.powers["environment"] == {"os.environ": ["__init__.py:9"]}


def test_compiled_and_unparsable_code_is_reported(read, tmp_path):
    (tmp_path / "fast.so").write_bytes(b"\x7fELF")
    found = read("x = (", good="import socket")
    assert found.powers == {"native code": {"fast.so": ["fast.so"]}, "network": {"socket": ["good.py:1"]}}
    assert [seen.partition(":")[0] for seen in found.unread] == ["__init__.py"]


def test_its_tests_are_not_scanned(read):
    found = read("x = 1", tests__of__test_it="import subprocess", conftest="import socket")
    assert found.powers == {}


@pytest.mark.parametrize(
    "code, seen",
    [
        ("import gateway.run\ngateway.run.GatewayRunner.start = f", "changes gateway.run.GatewayRunner.start"),
        ("from run_agent import AIAgent\nAIAgent.chat = f", "changes run_agent.AIAgent.chat"),
        ("import hermes_cli.main as m\nsetattr(m, 'main', f)", "changes hermes_cli.main.main"),
        ("import gateway.run as g\nr = g.Runner\nr.x += 1", "changes gateway.run.Runner.x"),
        ("import cli\ndel cli.HermesCLI", "changes cli.HermesCLI"),
        ("import sys\nsys.modules['gateway.run'] = x", "changes gateway.run"),
        ("import sys\nsys.modules['gateway.run'].start = x", "changes gateway.run.start"),
        ("from importlib import import_module\nt = import_module('tools.shell')\nt.run = x", "tools.shell.run"),
        ("import toolsets\n(toolsets.validate_toolset, y) = 1, 2", "changes toolsets.validate_toolset"),
    ],
)
def test_changes_of_hermes_internals_are_reported_with_their_place(read, code, seen):
    found = read(code)
    last = len(code.splitlines())
    assert any(seen in remark.says and remark.place == f"__init__.py:{last}" for remark in found.unsupported)


def test_unsupported_imports_are_reported_with_whether_they_are_optional(read):
    found = read(
        """
        from gateway.session import build_session_key
        from gateway.run import GatewayRunner
        try:
            from hermes_cli.banner import show
        except ImportError:
            show = None
        from . import agent, tools
        """
    )
    first, second = found.unsupported
    assert first.place == "__init__.py:3" and "gateway.run.GatewayRunner" in first.says
    assert second.place == "__init__.py:5" and second.optional and second.says.endswith("fallback")
    assert first.says.endswith("of Hermes Agent, which alipes does not provide") and not first.optional


def test_supported_names_cause_no_remark(read):
    found = read(
        """
        import hermes_constants
        from tools.registry import registry, tool_error
        from toolsets import TOOLSETS, _HERMES_CORE_TOOLS
        from hermes_cli.setup import print_info, prompt_yes_no
        import gateway.platforms.base as base
        registry.register(name="x", toolset="y", schema={}, handler=f)
        TOOLSETS["mine"] = {}
        class Mine(base.BasePlatformAdapter):
            def connect(self):
                self.running = True
        """
    )
    assert found.unsupported == [] and list(found.adds["tools"]) == ["x"]


def test_exactly_the_names_of_the_hermes_loader_are_supported():
    for module, names in NAMES.items():
        assert is_hermes_name(module) and is_supported(module)
        assert all(is_supported(f"{module}.{name}") for name in names)
    assert not is_supported("gateway.run.GatewayRunner") and not is_supported("run_agent")
    assert not is_hermes_name("json")


# --- no false alarms


@pytest.mark.parametrize(
    "code",
    [
        "def f(agent, tools):\n    agent.name = 1\n    setattr(tools, 'x', 2)\n",
        "def f():\n    gateway = make()\n    gateway.running = True\n",
        "import gateway.config\ndef f(gateway):\n    gateway.running = True\n",
        "for cli in many():\n    cli.name = 1\n",
        "with start() as agent:\n    agent.x = 1\n",
        "f = lambda tools: setattr(tools, 'x', 1)\n",
        "agent = object()\nagent.x = 1\n",
        "class A:\n    def f(self, cron=None, *, tools, **utils):\n        cron.x = tools.y = utils.z = 1\n",
    ],
)
def test_changes_of_parameters_and_variables_are_not_reported(read, code):
    assert read(code).unsupported == []


def test_changes_of_an_import_inside_a_function_are_reported_there_only(read):
    found = read("def f():\n    import run_agent as agent\n    agent.x = 1\ndef g(agent):\n    agent.x = 1\n")
    assert [each.place for each in found.unsupported] == ["__init__.py:2", "__init__.py:3"]


def test_parameters_named_like_built_in_functions_are_no_power(read):
    assert read("def f(exec, compile):\n    return exec(compile)\n").powers == {}


def test_its_own_hermes_packages_are_neither_missing_nor_unsupported(read, tmp_path):
    (tmp_path / "pyproject.toml").write_text('[project.entry-points."hermes_agent.plugins"]\nx = "hermes_mapped.y"\n')
    found = read(
        """
        import hermes_weather
        from hermes_forecast.wind import speed
        import hermes_mapped.more
        from utils import helper
        from tools.mine import x
        """,
        hermes_weather="",
        src__of__hermes_forecast="",
        utils="def helper(): ...",
        tools__of__mine="",
    )
    assert found.unsupported == [] and missing_modules(tmp_path, found) == {}


def test_tests_scripts_and_code_for_type_checkers_need_nothing(read, tmp_path):
    code = "import not_there_at_all, gateway.run\ngateway.run.x = 1\nimport subprocess\n"
    found = read(
        """
        from typing import TYPE_CHECKING
        if TYPE_CHECKING:
            from gateway.run import GatewayRunner
        if __name__ == "__main__":
            import not_there_at_all
        """,
        scripts__of__release=code,
        examples__of__one=code,
        test_it=code,
        setup=code,
    )
    assert found.unsupported == [] and missing_modules(tmp_path, found) == {}
    assert "subprocess" in found.powers["processes"], "a script is a power all the same"


def test_a_package_named_scripts_is_scanned(read):
    assert read(scripts__of____init__="", scripts__of__run="import run_agent").unsupported


@pytest.mark.parametrize(
    "code, missing",
    [
        ("try:\n    import gone_a\nexcept ImportError:\n    import gone_b\n", "gone_a"),
        ("try:\n    import gone_a\nexcept ImportError:\n    import json\n", ""),
        ("try:\n    import json\nexcept ImportError:\n    import gone_b\n", ""),
        ("try:\n    import gone_a\nexcept Exception:\n    gone_a = None\n", ""),
        ("try:\n    import gone_a\nexcept ImportError:\n    raise SystemExit('pip')\n", "gone_a"),
        ("try:\n    import gone_a\nexcept ValueError:\n    pass\n", "gone_a"),
        ("from contextlib import suppress\nwith suppress(ImportError):\n    import gone_a\n", ""),
        (
            "try:\n    from gateway.gone import a\nexcept ImportError:\n"
            "    try:\n        from gone_b import a\n    except ImportError:\n        from gone_c import a\n",
            "gateway.gone.a",
        ),
        (
            "try:\n    import gone_a\nexcept ImportError:\n"
            "    try:\n        import gone_b\n    except ImportError:\n        gone_b = None\n",
            "",
        ),
    ],
)
def test_of_several_imports_that_are_tried_the_first_is_missing(read, tmp_path, code, missing):
    assert list(missing_modules(tmp_path, read(code))) == [missing][: len(missing)]
