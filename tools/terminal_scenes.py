"""The states of the terminal that docs/terminal.md shows: what the model answers, what is typed, when to draw."""

from typing import Any, Literal, NamedTuple, TypeAlias

StepKind: TypeAlias = Literal["until", "type", "keys", "gone"]
Step: TypeAlias = tuple[StepKind, str]
"""`until`: wait for the text. `type`: type it, with Enter. `keys`: without. `gone`: wait until it is not shown."""
ESCAPE, CTRL_L, CTRL_O, SHIFT_TAB = "\x1b", "\x0c", "\x0f", "\x1b[Z"
READY: Step = ("until", "demo/scripted")


class Scene(NamedTuple):
    title: str
    about: str
    """One sentence below the title."""
    steps: tuple[Step, ...]
    plan: list[dict[str, Any]] | dict[str, Any] | None = None
    """Replies of the scripted model; None: no model is configured."""
    size: str = "88x24"
    command: tuple[str, ...] = ()
    files: dict[str, str] = {}  # noqa: RUF012
    config: str = ""
    """Further lines of config.toml."""


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
CHECK = """\
for n in 1 2 3 4; do
    echo checked $n of 40 files
    sleep 0.2
done
sleep 60
"""
PROJECT = {
    "shapes.py": CODE,
    "test_shapes.py": TEST,
    "check.sh": CHECK,
    "README.md": "# Shapes\n",
    ".git/HEAD": "ref: refs/heads/main\n",
}
USAGE = {"input": 5200, "output": 90}


def call(tool: str, **args: Any) -> dict[str, Any]:
    return {"name": tool, "args": args}


def calls(*wanted: dict[str, Any], text: str = "", thinking: str = "") -> dict[str, Any]:
    return {"type": "calls", "calls": list(wanted), "text": text, "thinking": thinking, "usage": USAGE}


def say(text: str, **usage: int) -> dict[str, Any]:
    return {"type": "say", "text": text, "pieces": 40, "usage": usage or {"input": 5900, "output": 150}}


FIXED = """\
The test passes now. `area` **added** the sides where it should multiply them:

| call | before | now |
|---|---|---|
| `area(3, 4)` | 7 | 12 |

Nothing else uses it, so I changed no other file.
"""
MARKDOWN = r"""
## Compound interest

After $n$ years an amount $a_0$ has grown to

$$
a_n = a_0 \cdot \left(1 + \frac{p}{100}\right)^n
$$

1. *p* is the rate in percent; see [the article](https://example.org/interest).
2. `math.pow` is not needed:

```python
def grow(amount, rate, years):
    return amount * (1 + rate / 100) ** years
```

| years | amount |
|---:|---:|
| 1 | 103.00 |
| 10 | 134.39 |

- [x] checked with `bc`
- [ ] taxes are left out
"""
WORKFLOW = """\
on: push
jobs:
  test:
    strategy:
      matrix:
        python: ["3.12", "3.13"]
"""
RUN_TEST = call("terminal", command="python3 -m unittest")
FIX = call("patch", mode="replace", path="shapes.py", old_string="width + height", new_string="width * height")
FIX_PLAN = [
    calls(RUN_TEST, text="I'll run the test first.", thinking="A failing test. I should see how it fails first."),
    calls(FIX),
    calls(RUN_TEST),
    say(FIXED),
]
SLOW = "sh check.sh"
SERVE = "echo listening on port 8000; sleep 600"
TODO = [
    {"id": "1", "content": "Read the failing test", "status": "completed"},
    {"id": "2", "content": "Correct the formula in shapes.py", "status": "in_progress"},
    {"id": "3", "content": "Run all tests", "status": "pending"},
]
ASK_FIX = "the test fails, can you fix it?"

SCENES: dict[str, Scene] = {
    "welcome": Scene(
        "The first screen",
        "A name, a sentence, three things to try, and the way to a real model. Once you have sent a message, the "
        "next starts show only its first line.",
        (("until", "embedded/smollm2"), ("until", "1 minute")),
    ),
    "terminal": Scene(
        "A conversation",
        "Tool calls with their output, a diff, the answer as Markdown, and the status line.",
        (READY, ("type", ASK_FIX), ("until", "no other file")),
        FIX_PLAN,
        "88x40",
        files=PROJECT,
    ),
    "running": Scene(
        "A running turn",
        "The last lines of the running command, the elapsed time and the key that stops it. You can type meanwhile.",
        (READY, ("type", "check all files"), ("until", "4 of 40"), ("keys", "and look at the README, too")),
        [calls(call("terminal", command=SLOW), text="I'll check them.")],
        files=PROJECT,
    ),
    "markdown": Scene(
        "Markdown",
        "Headings, lists, code, tables, links and formulas. Everything can be copied as plain text.",
        (READY, ("type", "how does compound interest work?"), ("until", "taxes are left out")),
        [say(MARKDOWN)],
        "88x44",
        files=PROJECT,
    ),
    "menu": Scene(
        "Commands",
        "The menu opens while you type a slash.",
        (READY, ("keys", "/re"), ("until", "/retry"), ("keys", "\x1b[B")),
        [say("Yes.")],
        files=PROJECT,
    ),
    "approval": Scene(
        "An approval",
        "A dangerous call waits for your decision. It is shown whole, with every reason.",
        (READY, ("type", "publish the release branch"), ("until", "[n]")),
        [calls(call("terminal", command="git push --force origin release"))],
        files=PROJECT,
    ),
    "edit-approval": Scene(
        "An approval of a change",
        "A change of a file that needs approval is shown as a diff.",
        (READY, ("type", "build with Python 3.14, too"), ("until", "[n]")),
        [
            calls(
                call(
                    "patch",
                    mode="replace",
                    path=".github/workflows/test.yml",
                    old_string='["3.12", "3.13"]',
                    new_string='["3.12", "3.13", "3.14"]',
                )
            )
        ],
        files=PROJECT | {".github/workflows/test.yml": WORKFLOW},
    ),
    "question": Scene(
        "A question",
        "The model can ask you; choose with the arrow keys or type your own answer.",
        (READY, ("type", "draw a logo for the README"), ("until", "Or type")),
        [
            calls(
                call("clarify", question="Which shape do you like?", choices=["a circle", "a square", "a triangle"]),
                text="I can draw it as SVG.",
            )
        ],
        files=PROJECT,
    ),
    "expanded": Scene(
        "More output",
        "Ctrl-O shows the last shortened output, thought or command in full; pressed again, the whole turn in a pager.",
        (READY, ("type", "run the test"), ("until", "It fails."), ("keys", CTRL_O), ("until", "7 != 12")),
        [calls(RUN_TEST), say("It fails.")],
        "88x40",
        files=PROJECT,
    ),
    "todo": Scene(
        "A plan",
        "The steps of a longer task, ticked off while it works.",
        (READY, ("type", "fix the test, then run all of them"), ("until", "Run all tests"), ("until", "4 of 40")),
        [calls(call("todo", todos=TODO)), calls(call("terminal", command=SLOW))],
        files=PROJECT,
    ),
    "subagents": Scene(
        "Subagents",
        "One row for each, with its time and current step.",
        (READY, ("type", "review both files"), ("until", "test_shapes.py"), ("until", "Run sh check.sh")),
        {
            "replies": [],
            "by": {
                "review both": [
                    calls(
                        call("delegate_task", tasks=[{"goal": "Review shapes.py"}, {"goal": "Review test_shapes.py"}])
                    )
                ],
                "Review": [calls(call("terminal", command=SLOW))] * 2,
            },
        },
        files=PROJECT,
    ),
    "jobs": Scene(
        "Background jobs",
        "The status line counts them; `/jobs` shows, follows and stops them.",
        (READY, ("type", "start the server"), ("until", "It runs."), ("type", "/jobs"), ("until", "/jobs stop ID")),
        [calls(call("terminal", command=SERVE, background=True)), say("It runs.")],
        files=PROJECT,
    ),
    "plan-mode": Scene(
        "Plan mode",
        "Only tools that read are allowed; the turn ends with a plan that you accept or change.",
        (READY, ("type", "/mode plan"), ("until", "plan mode"), ("type", ASK_FIX), ("until", "Accept this plan?")),
        [calls(call("read_file", path="shapes.py")), say("1. Multiply in `area`.\n2. Run the test.")],
        files=PROJECT,
    ),
    "held": Scene(
        "After a stop",
        "Queued messages are kept: Enter sends them, Esc drops them.",
        (
            READY,
            ("type", "/busy queue"),
            ("until", "queue:"),
            ("type", "check all files"),
            ("until", "4 of 40"),
            ("type", "then write a summary"),
            ("until", "queued"),
            ("keys", ESCAPE),
            ("until", "1 kept"),
        ),
        [calls(call("terminal", command=SLOW))],
        files=PROJECT,
    ),
    "files": Scene(
        "Files",
        "`@` finds files of the project by a few letters and attaches them.",
        (READY, ("keys", "explain @sh"), ("until", "test_shapes.py")),
        [say("Yes.")],
        files=PROJECT,
    ),
    "models": Scene(
        "Models",
        "Ctrl-L or `/model` opens a list that you filter by typing.",
        (READY, ("keys", CTRL_L), ("until", "demo/second")),
        [say("Yes.")],
        files=PROJECT,
        config='[models."demo/second"]\nwindow = 200000\n',
    ),
    "conversations": Scene(
        "Conversations",
        "`/resume` lists the conversations of this folder first.",
        (
            READY,
            ("type", "add a circle to shapes.py"),
            ("until", "circle now"),
            ("type", "/new"),
            ("until", "new conversation"),
            ("type", "write a README"),
            ("until", "README is"),
            ("type", "/new"),
            ("type", "why does area add the sides?"),
            ("until", "mistake"),
            ("type", "/resume"),
            ("until", "esc cancel"),
        ),
        {
            "replies": [],
            "by": {
                "circle": [say("There is a circle now.")],
                "README": [say("The README is written.")],
                "sides": [say("By mistake: it should multiply them.")],
            },
        },
        files=PROJECT,
    ),
    "keys": Scene(
        "Keys",
        "`?` on an empty line shows the keys.",
        (READY, ("keys", "?"), ("until", "Ctrl-O")),
        [say("Yes.")],
        "88x40",
        files=PROJECT,
    ),
    "narrow": Scene(
        "A narrow window",
        "Below 60 columns everything is wrapped, nothing is cut off.",
        (READY, ("type", ASK_FIX), ("until", "no other")),
        FIX_PLAN,
        "44x48",
        files=PROJECT,
    ),
    "ask": Scene(
        "One question",
        '`alipes ask`, or just `alipes "question"`, prints one answer: rendered at a terminal, raw in a pipe.',
        (("until", "no other file"),),
        FIX_PLAN,
        files=PROJECT,
        command=("ask", ASK_FIX),
    ),
    "plain": Scene(
        "Plain text",
        "`--plain` and `TERM=dumb` use lines only, for screen readers and logs.",
        (("until", ">"), ("type", ASK_FIX), ("until", "no other")),
        FIX_PLAN,
        files=PROJECT,
        command=("--plain",),
    ),
    "setup": Scene(
        "Setup",
        "`/setup` in the conversation or `alipes setup` in the shell.",
        (("until", "> anthropic"),),
        command=("setup",),
    ),
}
