"""A thread that never returns keeps nobody from leaving."""

import asyncio
import subprocess
import sys
import textwrap
import time

from alipes.runtime import tasks


def test_what_the_main_coroutine_gives_is_given():
    async def main():
        return await asyncio.to_thread(lambda: 7)

    assert tasks.run_event_loop(main()) == 7


def test_threads_that_are_done_are_waited_for():
    done = []

    async def main():
        asyncio.get_running_loop().run_in_executor(None, lambda: (time.sleep(0.2), done.append(True)))

    tasks.run_event_loop(main())
    assert done == [True]


def test_a_thread_that_never_returns_is_left_and_what_was_written_is_there():
    program = textwrap.dedent("""
        import asyncio, sys, threading
        from alipes.runtime import tasks
        tasks.JOIN_TIMEOUT_S = 0.1

        async def main():
            asyncio.get_running_loop().run_in_executor(None, threading.Event().wait)
            sys.stdout.write("said")  # not flushed
            return 5

        tasks.exit_process(tasks.run_event_loop(main()))
    """)
    ended = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, timeout=20, env={"PYTHONPATH": "src"}, check=False
    )
    assert (ended.returncode, ended.stdout, ended.stderr) == (5, b"said", b"")


def test_with_no_thread_left_the_process_ends_as_usual():
    program = "from alipes.runtime import tasks\nimport atexit\natexit.register(print, 'bye')\ntasks.exit_process(3)"
    ended = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, timeout=20, env={"PYTHONPATH": "src"}, check=False
    )
    assert (ended.returncode, ended.stdout) == (3, b"bye\n")


def test_a_signal_that_a_thread_was_given_wakes_the_loop():
    program = textwrap.dedent("""
        import asyncio, os, signal, sys, threading
        from alipes.runtime import tasks

        def interrupt(main):  # to this thread: the loop's own sleeps in its selector
            signal.pthread_kill(threading.get_ident(), signal.SIGINT)

        async def main():
            loop = asyncio.get_running_loop()
            loop.run_in_executor(None, interrupt, None)
            await asyncio.Event().wait()

        try:
            tasks.run_event_loop(main())
        except KeyboardInterrupt:
            print("interrupted", flush=True)
    """)
    for _ in range(5):
        ended = subprocess.run(
            [sys.executable, "-c", program], capture_output=True, timeout=20, env={"PYTHONPATH": "src"}, check=False
        )
        assert (ended.returncode, ended.stdout) == (0, b"interrupted\n"), ended.stderr
