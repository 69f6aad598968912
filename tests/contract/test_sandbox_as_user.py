"""What holds in a sandbox when root runs the tests holds for a user without rights too."""

import pytest

from tests.world.environment import ROOT
from tests.world.other_user import folder_of_nobody, run_as_nobody

FILES = (
    *("contract/test_exchanged_folders.py", "contract/test_approved_files.py", "contract/test_files_outside.py"),
    *("contract/test_conversations_in_sandbox.py", "contract/test_git_in_sandbox.py"),
    *("unit/runtime/sandbox/test_contained.py", "unit/runtime/sandbox/test_git_config.py"),
    *("unit/tools/test_boundary.py", "unit/tools/test_sandbox.py"),
)


@pytest.mark.deadline(300)
@pytest.mark.parametrize("file", FILES)
def test_it_holds_for_a_user_without_rights(file):
    with folder_of_nobody() as folder:
        words = ("-m", "pytest", "-q", "-n", "0", "-p", "no:cacheprovider", f"--basetemp={folder}/t", f"tests/{file}")
        done = run_as_nobody(words, folder, cwd=ROOT)
    assert done.returncode == 0, done.stdout.decode()[-6000:]
