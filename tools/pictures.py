"""Draw docs/pictures from real runs: the program, its tools, a scripted model and a loopback Telegram.

python tools/pictures.py
"""

import asyncio
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))

from tests.world.telegram_server import TelegramServer  # noqa: E402
from tools.chat_picture import ChatMessage, draw_chat, from_wire  # noqa: E402

OUT = ROOT / "docs" / "pictures"
THEMES = {"dark": "15;0", "light": "0;15"}
"""Values of COLORFGBG."""
CONFIG = """\
model = "demo/scripted"
[providers.demo]
base_url = "http://127.0.0.1:{port}/v1"
[models."demo/scripted"]
window = 64000
price_input = 3.0
price_output = 15.0
"""

QUESTION = "the test fails, can you fix it?"
CODE = '''\
def area(width, height):
    """The area of a rectangle."""
    return width + height
'''
TEST = """\
import unittest

from shapes import area


class Shapes(unittest.TestCase):
    def test_area(self):
        self.assertEqual(area(3, 4), 12)
"""
ANSWER = """\
The test passes now. `area` **added** the sides where it should multiply them:

| call | before | now |
|---|---|---|
| `area(3, 4)` | 7 | 12 |

Nothing else uses it, so I changed no other file.
"""
RUN_TEST = {"name": "terminal", "args": {"command": "python3 -m unittest"}}
FIX = {
    "name": "patch",
    "args": {"mode": "replace", "path": "shapes.py", "old_string": "width + height", "new_string": "width * height"},
}
TERMINAL_PLAN: list[dict[str, Any]] = [
    {
        "type": "calls",
        "calls": [RUN_TEST],
        "text": "I'll run the test first.",
        "thinking": "A failing test. I should see how it fails before I guess.",
        "usage": {"input": 5200, "output": 90},
    },
    {"type": "calls", "calls": [FIX], "usage": {"input": 5400, "output": 120}},
    {"type": "calls", "calls": [RUN_TEST], "usage": {"input": 5700, "output": 60}},
    {"type": "say", "text": ANSWER, "pieces": 40, "usage": {"input": 5900, "output": 150}},
]

OWNER = 7
CHAT = ("did the tests pass on the release branch?", "then push it, please")
CHAT_PLAN: dict[str, Any] = {
    "replies": [],
    "by": {
        "tests pass": [
            {"type": "say", "text": "Yes, **212 passed**. It was rebased on `main`, so it needs a forced push."}
        ],
        "push it": [
            {"type": "calls", "calls": [{"name": "terminal", "args": {"command": "git push --force origin release"}}]}
        ],
    },
}
"""Replies by what the last message contains."""


def main() -> None:
    OUT.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for theme in THEMES:
            draw_terminal(folder / f"terminal-{theme}", theme)
            draw_doctor(folder / theme[0], theme)
        (folder / "chat" / "work").mkdir(parents=True)
        messages = asyncio.run(record_chat(folder / "chat"))
        for theme in THEMES:
            (OUT / f"chat-{theme}.svg").write_text(draw_chat("alipes", messages, theme))


@contextmanager
def scripted_model(folder: Path, plan: object) -> Iterator[int]:
    """A model server that answers by `plan`; its port."""
    (folder / "plan.json").write_text(json.dumps(plan))
    files = ["--port-file", str(folder / "port"), "--plan", str(folder / "plan.json")]
    server = subprocess.Popen(
        [sys.executable, "-m", "tests.world.model_server", *files], cwd=ROOT, stdout=subprocess.PIPE, text=True
    )
    try:
        assert server.stdout is not None
        yield int(server.stdout.readline())
    finally:
        server.kill()
        server.wait()


def make_home(person: Path, config: str) -> Path:
    """The home of alipes below the folder of a person."""
    home = person / ".alipes"
    home.mkdir(mode=0o700, parents=True)
    (home / "config.toml").write_text(config)
    (home / "programs-reported").write_text("rg\nbwrap\ngit\n")
    return home


def environment(person: Path, **more: str) -> dict[str, str]:
    kept = {key: os.environ[key] for key in ("PATH", "LANG") if key in os.environ}
    return {**kept, "HOME": str(person), "PYTHONPATH": str(ROOT / "src"), **more}


def take(name: str, theme: str, size: str, *options: str, env: dict[str, str], cwd: Path) -> None:
    """Run tools/picture.py; `options` end with the command after `--`."""
    picture = [sys.executable, str(ROOT / "tools" / "picture.py"), str(OUT / f"{name}-{theme}.svg")]
    subprocess.run([*picture, "--size", size, "--theme", theme, *options], env=env, cwd=cwd, check=True)


def draw_terminal(person: Path, theme: str) -> None:
    """A conversation in the terminal: a failing test is fixed."""
    project = person / "project"
    project.mkdir(parents=True)
    (project / "shapes.py").write_text(CODE)
    (project / "test_shapes.py").write_text(TEST)
    with scripted_model(person, TERMINAL_PLAN) as port:
        make_home(person, CONFIG.format(port=port))
        steps = ["--until", "demo/scripted", "--type", QUESTION, "--until", "no other file"]
        command = ["--", sys.executable, "-m", "alipes"]
        env = environment(person, COLORFGBG=THEMES[theme])
        take("terminal", theme, "88x40", "--steady", *steps, *command, env=env, cwd=project)


def draw_doctor(person: Path, theme: str) -> None:
    """`alipes doctor` with problems. Paths and sizes of this machine are replaced.

    The length of the path of `person` decides where lines are wrapped.
    """
    person.mkdir()
    with scripted_model(person, TERMINAL_PLAN) as port:
        home = make_home(person, CONFIG.format(port=port) + '[plugins]\nenabled = ["weather"]\n')
        (home / ".env").write_text("DEMO_API_KEY=an-example-key\n")
        (home / ".env").chmod(0o644)
        env = environment(person)
        seen = subprocess.run(
            [sys.executable, "-m", "alipes", "doctor"], env=env, cwd=person, capture_output=True, text=True
        ).stdout
        free = re.search(r"[\d.]+ [GT]B free", seen)
        replaced = [
            f"{person}=/home/ada",
            f"{Path(sys.executable).parents[1]}=/opt/alipes",
            f"127.0.0.1:{port}=127.0.0.1:9100",
            f"{free[0] if free else ''}=64.0 GB free",
        ]
        pairs = [word for each in replaced for word in ("--replace", each)]
        command = ["--", sys.executable, "-m", "alipes", "doctor"]
        take("doctor", theme, "104x26", *pairs, *command, env=env, cwd=person)


async def record_chat(person: Path) -> list[ChatMessage]:
    """A chat on the loopback Telegram, up to an approval question with its buttons."""
    with scripted_model(person, CHAT_PLAN) as port:
        async with TelegramServer() as telegram:
            platform = f'[telegram]\nbase_url = "{telegram.url}"\npoll = 2\nallow = [{OWNER}]\n'
            home = make_home(person, CONFIG.format(port=port) + platform)
            (home / ".env").write_text(f"TELEGRAM_BOT_TOKEN={telegram.token}\n")
            (home / ".env").chmod(0o600)
            serve = await asyncio.create_subprocess_exec(
                *(sys.executable, "-m", "alipes", "serve", "--port", "0"),
                env=environment(person),
                cwd=person / "work",
                stdout=asyncio.subprocess.DEVNULL,
            )
            try:
                return await asyncio.wait_for(_converse(telegram), 60)
            finally:
                serve.terminate()
                await serve.wait()


async def _converse(telegram: TelegramServer) -> list[ChatMessage]:
    def messages() -> list[ChatMessage]:
        kept = telegram.chats.messages.get(OWNER, {}).values()
        return [from_wire(each.wire, from_bot=each.mine) for each in kept if not each.deleted]

    for text, done in zip(CHAT, (_is_answered, _is_asked), strict=True):
        telegram.chats.say(text, chat=OWNER)
        await telegram.until(lambda done=done: done(messages()))
    return messages()


def _is_answered(messages: list[ChatMessage]) -> bool:
    return any("212 passed" in each.text for each in messages)


def _is_asked(messages: list[ChatMessage]) -> bool:
    return bool(messages and messages[-1].keyboard)


if __name__ == "__main__":
    if shutil.which("python3") is None:
        raise SystemExit("the terminal picture runs python3, which is not on the PATH")
    main()
