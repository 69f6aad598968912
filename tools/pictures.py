"""Draw docs/pictures from real runs: the program, its tools, a scripted model and a loopback Telegram.

    python tools/pictures.py [NAME]...

Without names, all of them. The pictures of the terminal are listed in docs/terminal.md.
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
from tools.terminal_scenes import FIX_PLAN, SCENES  # noqa: E402

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


GALLERY = re.compile(r"(<!-- pictures -->\n).*?(<!-- end of pictures -->)", re.DOTALL)


def main(names: list[str]) -> int:
    """Draw the pictures `names`, or all. The status is 1 if a state of the terminal did not appear."""
    OUT.mkdir(exist_ok=True)
    failed = []
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for theme in THEMES:
            for scene in [each for each in SCENES if each in names or not names]:
                try:
                    draw_scene(scene, folder / f"{scene}-{theme}", theme)
                except subprocess.CalledProcessError:
                    failed.append(f"{scene}-{theme}")
            if "doctor" in names or not names:
                draw_doctor(folder / theme[0], theme)
        if "chat" in names or not names:
            (folder / "chat" / "work").mkdir(parents=True)
            messages = asyncio.run(record_chat(folder / "chat"))
            for theme in THEMES:
                (OUT / f"chat-{theme}.svg").write_text(draw_chat("alipes", messages, theme))
    if "page" in names or not names:
        failed += [] if take_page_pictures() else ["page"]
    write_gallery()
    print("\n".join(f"not drawn: {each}" for each in failed) or "all drawn")
    return int(bool(failed))


def take_page_pictures() -> bool:
    """The pictures of the page; False if one could not be taken."""
    command = [sys.executable, "-m", "pytest", "-q", "tests/page/test_pictures.py"]
    env = {**os.environ, "ALIPES_TEST_PICTURES": str(OUT)}
    done = subprocess.run(command, cwd=ROOT, env=env, check=False).returncode == 0
    write_screens()
    return done


def write_screens() -> None:
    """List the pictures of the screens of the page in docs/page-screens.md."""
    from tests.page.test_pictures import CHATS, SCREENS  # noqa: PLC0415

    parts = []
    for name, about in {**CHATS, **SCREENS}.items():
        rows = "\n".join(
            f"| ![{about}, 1280 px, {theme}](pictures/page/{name}-1280-{theme}.png) "
            f"| ![{about}, 390 px, {theme}](pictures/page/{name}-390-{theme}.png) |"
            for theme in ("light", "dark")
        )
        parts.append(f"### {about}\n\n| 1280 px | 390 px |\n|---|---|\n{rows}\n")
    page = OUT.parent / "page-screens.md"
    page.write_text(GALLERY.sub(lambda found: found[1] + "\n".join(parts) + found[2], page.read_text()))


def write_gallery() -> None:
    """List the states of which both pictures exist in docs/terminal.md."""
    parts = []
    for name, scene in SCENES.items():
        if all((OUT / f"{name}-{theme}.svg").exists() for theme in THEMES):
            shown = "\n".join(f"![{scene.title}, {theme}](pictures/{name}-{theme}.svg)" for theme in THEMES)
            parts.append(f"### {scene.title}\n\n{scene.about}\n\n{shown}\n")
    page = OUT.parent / "terminal.md"
    page.write_text(GALLERY.sub(lambda found: found[1] + "\n".join(parts) + found[2], page.read_text()))


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
    kept = {key: os.environ[key] for key in ("LANG",) if key in os.environ}
    return {
        **kept,
        "PATH": "/usr/local/bin:/usr/bin:/bin",
        "HOME": str(person),
        "PYTHONPATH": str(ROOT / "src"),
        **more,
    }


def take(name: str, theme: str, size: str, *options: str, env: dict[str, str], cwd: Path) -> None:
    """Run tools/picture.py; `options` end with the command after `--`."""
    picture = [sys.executable, str(ROOT / "tools" / "picture.py"), str(OUT / f"{name}-{theme}.svg")]
    subprocess.run([*picture, "--size", size, "--theme", theme, *options], env=env, cwd=cwd, check=True)


def draw_scene(name: str, person: Path, theme: str) -> None:
    """One state of the terminal."""
    scene = SCENES[name]
    project = person / "shapes"
    project.mkdir(parents=True)
    for file, text in scene.files.items():
        (project / file).parent.mkdir(parents=True, exist_ok=True)
        (project / file).write_text(text)
    with scripted_model(person, scene.plan or []) as port:
        home = make_home(person, CONFIG.format(port=port) + scene.config if scene.plan else "")
        if scene.plan:
            (home / "history").touch()  # no welcome
        steps = ["--rename", f"{person}=/home/ada", "--steady", "--steps", json.dumps(scene.steps)]
        command = ["--", sys.executable, "-m", "alipes", *scene.command]
        env = environment(person, COLORFGBG=THEMES[theme])
        take(name, theme, scene.size, *steps, *command, env=env, cwd=project)


def draw_doctor(person: Path, theme: str) -> None:
    """`alipes doctor` with problems. Paths and sizes of this machine are replaced.

    The length of the path of `person` decides where lines are wrapped.
    """
    person.mkdir()
    with scripted_model(person, FIX_PLAN) as port:
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
    raise SystemExit(main(sys.argv[1:]))
