"""The pytest plugin, as an author meets it: in a project of its own, run by a pytest of its own."""

import os
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

SRC = Path(__file__).parents[2] / "src"


@pytest.fixture
def project(tmp_path):
    (tmp_path / "conftest.py").write_text('pytest_plugins = ["alipes.testing.pytest_plugin"]\n')
    (tmp_path / "pytest.ini").write_text("[pytest]\naddopts = --strict-markers -p no:cacheprovider\n")
    (tmp_path / "greeter.py").write_text(
        "from alipes.plugin import tool\n\n"
        '@tool(effect="read")\nasync def greet(name: str) -> str:\n    "Greet."\n    return f"Hello {name}"\n'
    )

    def run(code, *options):
        (tmp_path / "test_it.py").write_text(textwrap.dedent(code))
        env = {**os.environ, "PYTHONPATH": os.pathsep.join((str(SRC), str(tmp_path))), "COLUMNS": "200"}
        argv = [sys.executable, "-m", "pytest", "-q", "-rA", *options]
        done = subprocess.run(argv, cwd=tmp_path, env=env, capture_output=True, text=True)
        return done.stdout + done.stderr

    return run


def test_a_first_test_is_five_lines(project):
    said = project(
        """
        import greeter
        from alipes.testing import call
        async def test_it_greets(alipes):
            async with alipes(plugins=[greeter], model=[call("greet", name="Ada"), "done"]) as agent:
                assert (await agent.say("greet Ada")).result("greet").text == "Hello Ada"
        """
    )
    assert "1 passed" in said, said


def test_a_failing_assertion_is_shown_as_one_and_the_others_go_on(project):
    said = project(
        """
        async def test_wrong(alipes):
            async with alipes(model=["yes"]) as agent:
                reply = await agent.say("hello")
                assert reply.text == "no"

        async def test_right():
            pass

        def test_plain():
            pass
        """
    )
    assert "1 failed, 2 passed" in said and "AssertionError: assert 'yes' == 'no'" in said, said
    assert "ExceptionGroup" not in said


def test_a_test_has_a_deadline_which_can_be_moved_and_says_where_it_stood(project):
    said = project(
        """
        import asyncio, pytest

        @pytest.mark.deadline(0.05)
        async def test_hangs():
            await asyncio.Event().wait()
        """
    )
    assert "1 failed" in said and "not done after 0.05 s; waiting tasks:" in said, said
    assert "test_hangs" in said


def test_the_leak_fixture_fails_a_test_that_leaves_something_open_and_no_other(project):
    said = project(
        """
        import asyncio, os, pytest

        async def test_task(leaks):
            leaks.within = 0.05
            asyncio.create_task(asyncio.sleep(60), name="forgotten")

        def test_descriptor(leaks):
            os.dup(1)

        async def test_allowed(leaks):
            leaks.allow("tasks")
            asyncio.create_task(asyncio.sleep(60))

        @pytest.mark.usefixtures("leaks")
        async def test_clean(alipes):
            async with alipes(model=["hi"]) as agent:
                await agent.say("hello")
        """
    )
    assert "FAILED test_it.py::test_task" in said and "forgotten" in said, said
    assert "ERROR test_it.py::test_descriptor" in said and "opened and not closed:" in said, said
    assert "PASSED test_it.py::test_allowed" in said and "PASSED test_it.py::test_clean" in said, said


def test_a_plugin_that_cannot_be_loaded_says_why(project):
    said = project(
        """
        import pytest, types
        from alipes.plugin import PluginError

        async def test_it(alipes):
            broken = types.ModuleType("broken")
            exec("async def before_toool(call): pass", vars(broken))
            with pytest.raises(PluginError, match="broken.*before_tool"):
                async with alipes(plugins=[broken]):
                    pass
        """
    )
    assert "1 passed" in said, said


def test_tests_of_other_runners_are_left_to_them(project):
    said = project(
        """
        import unittest

        class TestOld(unittest.IsolatedAsyncioTestCase):
            async def test_it(self):
                pass
        """
    )
    assert "1 passed" in said, said
