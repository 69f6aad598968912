"""Room for many connections, in a process of its own: lowered limits cannot be raised again."""

import subprocess
import sys

import pytest

SCRIPT = """
import resource, sys
from alipes.runtime.process_setup import raise_file_limit
low, cap, wanted = map(int, sys.argv[1:])
resource.setrlimit(resource.RLIMIT_NOFILE, (low, cap))
print(raise_file_limit(wanted), resource.getrlimit(resource.RLIMIT_NOFILE)[0])
"""


@pytest.mark.parametrize(
    ("low", "cap", "wanted", "reached"),
    [(128, 512, 300, 300), (128, 512, 4000, 512), (400, 512, 300, 400)],
    ids=["as wanted", "as far as allowed", "never lowered"],
)
def test_the_limit_is_raised_as_far_as_we_may(low: int, cap: int, wanted: int, reached: int):
    argv = [sys.executable, "-c", SCRIPT, str(low), str(cap), str(wanted)]
    done = subprocess.run(argv, capture_output=True, text=True, check=True)
    assert done.stdout.split() == [str(reached), str(reached)]
