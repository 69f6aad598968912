import asyncio

from alipes.platforms.state_files import write_atomic


async def test_writers_of_one_file_may_overlap(tmp_path):
    path = tmp_path / "seen.json"
    async with asyncio.TaskGroup() as group:
        for number in range(200):
            group.create_task(asyncio.to_thread(write_atomic, path, b"%d" % number))
    assert 0 <= int(path.read_bytes()) < 200
    assert [each.name for each in tmp_path.iterdir()] == ["seen.json"]
