"""Logs of servers: limited in size, without secrets."""

from alipes.features.mcp.client.server_log import MAX_FILE_BYTES, ServerLog, read_log


def said(tmp_path) -> list[str]:
    return [line.partition(" ")[2].partition(" ")[2] for line in read_log(tmp_path, "s")]


async def test_pieces_become_whole_lines(tmp_path):
    log = ServerLog(tmp_path, "s")
    for piece in (b"one\ntw", b"o\n\nthr", b"ee"):
        await log.feed(piece)
    await log.finish()
    assert said(tmp_path) == ["one", "two", "three"]
    assert log.last_lines == ("one", "two", "three")


async def test_secrets_are_masked(tmp_path):
    await ServerLog(tmp_path, "s", lambda text: text.replace("hunter2", "***")).add("password hunter2")
    assert said(tmp_path) == ["password ***"]


async def test_a_flood_does_not_grow_the_log_without_limit(tmp_path):
    log = ServerLog(tmp_path, "s")
    for _ in range(60):
        await log.feed(b"noise " * 5000 + b"\n" + b"x" * 60_000)
    await log.finish()
    assert sum(path.stat().st_size for path in tmp_path.iterdir()) <= 3 * MAX_FILE_BYTES
    assert len(list(tmp_path.iterdir())) <= 2


async def test_a_missing_log_is_empty(tmp_path):
    assert list(read_log(tmp_path, "none")) == []
