"""Clients left on closed loops are collected unnoticed while a person types in the real terminal."""

import asyncio
import json
import sys

import pytest

from tests.e2e.program import ROOT, Home
from tests.world.terminal_process import CTRL_D, ENTER, TerminalProcess
from tests.world.tls import ca_file, open_loopback

KINDS = ("openai", "anthropic", "httpx2", "httpx")


@pytest.mark.deadline(120)
async def test_stale_clients_show_nothing_and_lose_no_key(tmp_path):
    home = Home(tmp_path / "home")
    done = tmp_path / "done"
    async with open_loopback() as plain, open_loopback(tls=True) as secure:
        urls = [plain.url, secure.url]
        plan = json.dumps({"kinds": KINDS, "urls": urls, "times": 2, "report": str(done)})
        env = home.environ(
            SSL_CERT_FILE=str(ca_file(tmp_path)), PYTHONPATH=f"{ROOT}/src:{ROOT}", PYTHONWARNINGS="default"
        )
        start = (sys.executable, "-m", "tests.e2e.stale_terminal")
        async with TerminalProcess.running([plan], env, ROOT, start=start) as terminal:
            await terminal.until("(from ")
            typed = ""
            while not done.exists():
                if len(typed) < 70:
                    typed += "abcdefghij"[len(typed) % 10]
                    terminal.type(typed[-1])
                await asyncio.sleep(0.03)
            await terminal.until(f"› {typed}")
            assert terminal.shown[-2].rstrip() == f"› {typed}" and terminal.shown[-1].startswith("  scripted/echo")
            terminal.type(ENTER)
            await terminal.until(f"You said: {typed}")
            terminal.type(CTRL_D)
            assert await terminal.ended() == 0
        assert len(plain.connections) == len(secure.connections) == 2 * len(KINDS)
    log = [json.loads(line) for line in (home.path / "logs" / "alipes.log").read_text().splitlines()]
    assert [line for line in log if line["level"] == "error"] == []
