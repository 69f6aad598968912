"""A secret that arrives in two pieces, or is cut, is not shown in parts."""

from alipes.runtime.redaction import SecretRegistry
from alipes.tools.shell import terminal
from alipes.tools.shell.output import HEAD_BYTES, TAIL_BYTES, CommandOutput, ProcessLog, SpillFolder
from alipes.tools.shell.terminal import OutputProgress

SECRET = "sk-canary-0123456789abcdefghij"


class Act:
    def __init__(self):
        self.shown = []

    async def progress(self, text):
        self.shown.append(text)


async def test_progress_shows_no_part_of_a_secret(monkeypatch):
    monkeypatch.setattr(terminal, "PROGRESS_INTERVAL_S", -1.0)  # every piece is due at once
    for cut in range(1, len(SECRET)):
        act, pieces = Act(), [f"key={SECRET[:cut]}".encode(), f"{SECRET[cut:]} end.".encode()]
        progress = OutputProgress(act, SecretRegistry([SECRET]))

        async def read(pieces=pieces):
            return pieces.pop(0)

        while pieces:
            await progress.read_and_show(read)
        assert "".join(act.shown) == "key=*** end."


async def test_polls_of_a_background_process_show_no_part_of_a_secret(tmp_path):
    for cut in range(1, len(SECRET)):
        log = ProcessLog(SpillFolder(tmp_path, mask=SecretRegistry([SECRET])), None)
        await log.feed(f"key={SECRET[:cut]}".encode())
        first = log.read_new()
        await log.feed(f"{SECRET[cut:]} end".encode())
        second = log.read_new()
        await log.finish()
        assert first + second + log.read_new() == "key=*** end"


async def test_a_secret_at_the_cut_of_a_long_output_is_masked(tmp_path):
    for shift in range(0, len(SECRET), 7):
        output = CommandOutput(SpillFolder(tmp_path, mask=SecretRegistry([SECRET])))
        before, between = "." * (HEAD_BYTES - 15 - shift), "-" * 30_000
        after = "." * (TAIL_BYTES - 15 - shift)
        await output.feed(f"{before}{SECRET}{between}{SECRET}{after}".encode())
        for text in (await output.text(), await output.full_text()):
            assert "canary" not in text and "0123456" not in text and "defghij" not in text
