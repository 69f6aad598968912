"""Changes of `.env` while the process runs."""

from alipes.config.environment import EnvFileWatch
from alipes.testing import call, open_agent


def test_the_values_are_given_once_after_each_change(tmp_path):
    watch = EnvFileWatch(tmp_path / ".env")
    assert watch.changed_values() == ()
    (tmp_path / ".env").write_text("A=one\nB=\n")
    assert watch.changed_values() == ("one",) and watch.changed_values() == ()
    (tmp_path / ".env").write_text("A=one\nB=second\n")
    assert watch.changed_values() == ("one", "second")
    (tmp_path / ".env").write_text("not valid\n")
    assert watch.changed_values() == ()


async def test_a_value_added_to_the_file_is_masked_from_the_next_turn_on(tmp_path):
    note = tmp_path / "note.txt"
    note.write_text("the key is canary-added-later\n")
    script = [call("read_file", path=str(note)), "one", call("read_file", path=str(note)), "two"]
    async with open_agent(home=tmp_path / "home", model=script) as agent:
        assert "canary-added-later" in (await agent.say("go")).results[0].text
        (tmp_path / "home" / ".env").write_text("NEW_KEY=canary-added-later\n")
        text = (await agent.say("again")).results[0].text
        assert "canary-added-later" not in text and "the key is ***" in text
