"""`alipes schedule`: output and errors."""

import io
import json

import pytest

from alipes.cli.main import main


@pytest.fixture
def seen(tmp_path, monkeypatch, capsys):
    home = tmp_path / "home"
    home.mkdir()
    (home / "config.toml").write_text('timezone = "Europe/Berlin"\nsandbox.backend = "host"\n')
    monkeypatch.setenv("ALIPES_HOME", str(home))
    monkeypatch.setenv("TZ", "Asia/Tokyo")
    monkeypatch.chdir(tmp_path)

    def run(*words, stdin=""):
        monkeypatch.setattr("sys.stdin", io.StringIO(stdin))
        try:
            status = main(["schedule", *words])
        except SystemExit as left:
            status = left.code
        shown = capsys.readouterr()
        return status, shown.out, shown.err

    return run


def test_a_job_is_added_with_its_next_times_in_the_zone_of_the_settings(seen, tmp_path):
    status, out, _ = seen("add", "every weekday at 9", "Say hello", "--name", "hello")
    lines = out.splitlines()
    assert status == 0 and lines[0] == "Added hello: every weekday at 9"
    assert all(" 09:00 CE" in line for line in lines[1:4]) and "Start `alipes serve`" in out
    assert "schedules/hello" in lines[4]
    (listed,) = json.loads(seen("list", "--json")[1])
    assert listed["schedule"]["job"]["prompt"] == "Say hello" and listed["last"] is None
    assert listed["schedule"]["job"]["workdir"] == str(tmp_path)


def test_a_job_is_changed_paused_resumed_and_removed(seen):
    seen("add", "every day at 9", "Say hello", "--name", "hello")
    assert "(on)" in seen("edit", "hello", "--when", "every day at 10", "--retries", "2")[1]
    assert "2, after" in seen("show", "hello")[1]
    assert seen("pause", "hello")[1] == "hello: every day at 10 (paused)\n" and "10:00" in seen("resume", "hello")[1]
    status, _, error = seen("remove", "hello")
    assert status == 2 and "--yes" in error
    assert seen("remove", "hello", "--yes")[1] == "Removed hello.\n"
    assert "No jobs" in seen()[1]


def test_a_job_names_its_skills_and_an_unknown_one_is_remarked_on(seen, tmp_path):
    folder = tmp_path / "home" / "skills" / "weather"
    folder.mkdir(parents=True)
    (folder / "SKILL.md").write_text("---\nname: weather\ndescription: About it.\n---\nLook.\n")
    words = ("add", "every day at 9", "Will it rain?", "--name", "rain")
    _, out, _ = seen(*words, "--skill", "weather", "--skill", "verse")
    assert "no skill verse was found" in out and "weather was" not in out
    assert "weather, verse" in seen("show", "rain")[1]
    seen("edit", "rain", "--skill", "none", "--budget", "$1")
    assert "skills:" not in seen("show", "rain")[1]
    seen("edit", "rain", "--budget", "none")
    assert "budget:" not in seen("show", "rain")[1]


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("add", "whenever", "x"), "cannot read the time"),
        (("add",), "missing WHEN"),
        (("add", "every", "day", "at", "9", "say hi"), "Put the time in quotes"),
        (("add", "in 1h"), "nothing to do: give a prompt or a script"),
        (("add", "in 1h", "x", "--mode", "wild"), "mode must be one of"),
        (("add", "in 1h", "x", "--missed", "maybe"), "missed must be"),
        (("add", "in 1h", "x", "--retries", "many"), "retries must be"),
        (("add", "in 1h", "x", "--budget", "lots"), "budget must be an amount"),
        (("add", "in 1h", "x", "--timezone", "Mars/Base"), "unknown time zone"),
        (("add", "in 1h", "x", "--name", "No Name"), "is not a valid name"),
        (("add", "in 1h", "x", "--folder", "/nonexistent"), "is not a folder"),
        (("show", "nothing"), "there is no job 'nothing'"),
        (("show",), "takes one NAME"),
        (("fly",), "unknown action"),
    ],
)
def test_wrong_input_is_explained(seen, words, says):
    status, _, error = seen(*words)
    assert status == 2 and says in error


def test_a_script_is_run_without_a_server_and_its_history_is_kept(seen):
    seen("add", "every day at 9", "--script", "echo good; echo morning", "--name", "greet", "--to", "none")
    status, out, error = seen("run", "greet")
    assert (status, out) == (0, "good\nmorning\n"), error
    seen("add", "every day at 9", "--script", "echo oh; exit 4", "--name", "broken", "--to", "none")
    status, _, error = seen("run", "broken")
    assert status == 1 and "exit code 4" in error
    history = seen("history")[1]
    assert "greet" in history and "failed" in history and "manual" in history
    (run,) = json.loads(seen("history", "greet", "--json")[1])
    assert run["state"] == "ok" and run["session"]
