"""Files of chats on two workers that share a store."""

from pathlib import Path

from alipes.kernel.outbox import Media, Outbound
from alipes.kernel.platform import IncomingMessage, ReceivedFile
from alipes.kernel.turns import Address
from alipes.runtime.blobs.chat_files import ChatFiles
from alipes.runtime.blobs.folder import FolderBlobs

HERE = Address("telegram", "1")


def make_worker(tmp_path: Path, *, cache_bytes: int = 1000) -> ChatFiles:
    store = FolderBlobs(tmp_path / "store", max_bytes=100)
    return ChatFiles(tmp_path / "home" / "blobs", store, max_bytes=100, cache_bytes=cache_bytes)


def lose_copies(tmp_path: Path) -> None:
    """As on a worker that has the same path, but not the file."""
    for copy in (tmp_path / "home" / "blobs").iterdir():
        copy.unlink()


def receive(tmp_path: Path, name: str = "../plan.pdf", data: bytes = b"plan") -> IncomingMessage:
    path = tmp_path / "received"
    path.write_bytes(data)
    return IncomingMessage("1", HERE, "ann", files=(ReceivedFile(str(path), name=name),))


async def test_a_received_file_is_fetched_by_the_worker_whose_tool_names_it(tmp_path: Path) -> None:
    worker = make_worker(tmp_path)
    message = await worker.share_received(receive(tmp_path))
    path = Path(message.files[0].path)
    assert path.parent == tmp_path / "home" / "blobs"
    lose_copies(tmp_path)
    other = make_worker(tmp_path)
    await other.fetch_named(f"cat '{path}' | head")
    assert path.read_bytes() == b"plan"


async def test_the_files_named_by_a_call_are_fetched(tmp_path: Path) -> None:
    worker = make_worker(tmp_path)
    path = Path((await worker.share_received(receive(tmp_path))).files[0].path)
    lose_copies(tmp_path)
    await worker.tool_arguments({"paths": [{"path": f"{path}"}]}, None)  # type: ignore[arg-type]
    assert path.exists()


async def test_a_hostile_name_in_a_call_fetches_nothing(tmp_path: Path) -> None:
    worker = make_worker(tmp_path)
    await worker.fetch_named(f"{tmp_path}/home/blobs/../../../etc/passwd {tmp_path}/home/blobs/x")
    assert not (tmp_path / "home").exists()


async def test_a_file_too_large_for_the_store_stays_where_it_is(tmp_path: Path) -> None:
    message = receive(tmp_path, data=b"x" * 101)
    assert await make_worker(tmp_path).share_received(message) == message


async def test_without_a_store_nothing_changes(tmp_path: Path) -> None:
    worker = ChatFiles(tmp_path / "blobs", max_bytes=100, cache_bytes=100)
    message = receive(tmp_path)
    assert await worker.share_received(message) is message


async def test_another_worker_can_send_a_file(tmp_path: Path) -> None:
    made = tmp_path / "chart.png"
    made.write_bytes(b"png")
    outbound = Outbound("1", HERE, media=(Media(str(made), "image", "chart.png"),))
    (shared,) = await make_worker(tmp_path).share_outbound((outbound,))
    made.unlink()
    fetched = await make_worker(tmp_path).fetch_outbound(shared)
    assert Path(fetched.media[0].path).read_bytes() == b"png"
    assert fetched.media[0].name == "chart.png"


async def test_the_oldest_copies_are_deleted_above_the_limit(tmp_path: Path) -> None:
    worker = make_worker(tmp_path, cache_bytes=10)
    for data in (b"1" * 8, b"2" * 8):
        await worker.share_received(receive(tmp_path, data=data))
    (copy,) = (tmp_path / "home" / "blobs").iterdir()
    assert copy.read_bytes() == b"2" * 8
