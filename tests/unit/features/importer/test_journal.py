"""What an import remembers of the files that it changes."""

from alipes.features.importer.journal import FileJournal


def test_a_file_that_was_being_made_when_the_import_was_killed_was_not_there_before(tmp_path):
    folder, file = tmp_path / "imports/x-1", tmp_path / "config.toml"
    with FileJournal(tmp_path, folder).changing(file):
        file.write_text("model = 1")
        killed = FileJournal(tmp_path, folder)
    assert killed.read_before(file) == "" and not killed.existed(file)
    with killed.changing(file):
        file.write_text("model = 2")
    assert killed.read_before(file) == "" and killed.restore() == (["config.toml"], [])
    assert not file.exists()


def test_a_file_of_the_person_is_as_it_was_before_the_import_that_was_killed(tmp_path):
    folder, file = tmp_path / "imports/x-1", tmp_path / "config.toml"
    file.write_text("mine = 1")
    with FileJournal(tmp_path, folder).changing(file):
        file.write_text("model = 1")
        killed = FileJournal(tmp_path, folder)
    assert killed.read_before(file) == "mine = 1" and killed.existed(file)
    assert killed.restore() == (["config.toml"], []) and file.read_text() == "mine = 1"
