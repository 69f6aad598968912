"""Commands on another machine or in a container: a shell script that marks them, and ends all their processes.

The client program (`ssh`, `docker`) is a process here, but killing it does not end what it started there. So every
command there carries a mark that its descendants inherit: an unusual hard limit of the resident set size, which Linux
ignores and only root can raise. In a container, a process that lowered it is ended as well. Needed there: `sh`,
`grep` and /proc.
"""

import secrets
from collections.abc import Sequence
from itertools import count

_MARKS = 900_000
_UNIT = 1024
"""Shells set this limit in kilobytes; /proc shows bytes."""
_END_PROCESSES = """
end_processes() {
  signal=TERM try=0 clean=0 dead=
  while [ $((try += 1)) -le 100 ]; do
    found=$(
      grep -lsE -e "resident set +[^ ]+ +($1) " /proc/[0-9]*/limits
      [ -z "$2" ] || grep -LsE -e "resident set +[^ ]+ +($2) " /proc/[0-9]*/limits
      echo end
    ) alive= still_dead=
    for file in $found; do
      [ "$file" != end ] || continue
      process=${file%/limits} state=Z
      while read -r key state _; do [ "$key" != State: ] || break; done 2>/dev/null <"$process/status"
      case $state in
        [ZX])
          still_dead="$still_dead $process"
          case "$dead " in *" $process "*) ;; *) alive=1 ;; esac
          continue ;;
      esac
      alive=1
      kill -$signal "${process#/proc/}" 2>/dev/null
    done
    dead=$still_dead
    if [ ! "$alive" ] && [ "${found%end}" != "$found" ]; then
      [ $((clean += 1)) -lt 2 ] || return 0
      continue
    fi
    clean=0
    [ $signal = KILL ] || sleep 0.03
    signal=KILL
  done
  return 1
}
"""
"""A process that exits during a search may have started another one that the search does not see: so the end is two
searches in a row that find nothing but processes that were dead before. `echo end` shows that grep was started: with no
process left to start, nothing would be found either."""
_RUN = (
    _END_PROCESSES
    + """
mark=$1 others=$2 limit=$3
cd -- "$4" || exit 126
shift 4
trap : HUP INT QUIT TERM
command -v "$1" >/dev/null || [ "$1" != bash ] || { shift; set -- sh "$@"; }
(ulimit -m "$limit" && exec "$@")
code=$?
end_processes "$mark" "$others"
exit $code
"""
)
"""A handled signal has its default action again in the command; it must not end this shell before the rest."""
_END = f'{_END_PROCESSES}end_processes "$1" "$2"'
_HOLD = "echo alipes-ready; until cat >/dev/null; do :; done"
"""The shell reaps orphans while it waits for `cat`, which ends with its input: when the client here ends. A command in
the same container may kill `cat`, but not the first process."""
READY = b"alipes-ready\n"


class CommandMarks:
    """Marks of the commands of one backend, distinct from those of every other process of this program."""

    def __init__(self) -> None:
        self._owner = 2 * (50_000_000 + secrets.randbelow(450_000_000))  # even: all marks are multiples of `_UNIT`
        self._numbers = count()

    def next(self) -> int:
        return self._owner * 10**9 + next(self._numbers) % _MARKS * _UNIT

    @property
    def pattern(self) -> str:
        """A regular expression for all of them."""
        return f"{self._owner}[0-9]{{9}}"


def run_argv(command: str | Sequence[str], mark: int, cwd: str, others: str = "") -> list[str]:
    """Runs a command there with `mark`. Returns when it has exited and its leftover processes are ended.

    `others`: a pattern of the limits that other processes have; those with any other limit are ended too.
    """
    argv = ["bash", "-c", command] if isinstance(command, str) else list(command)
    return ["sh", "-c", _RUN, "alipes", str(mark), others, str(mark // _UNIT), cwd, *argv]


def end_argv(marks: int | str, others: str = "") -> list[str]:
    """Ends all processes whose mark matches. Exit code 1: some could not be ended."""
    return ["sh", "-c", _END, "alipes", str(marks), others]


def hold_argv(marks: str = "", finish: str = "") -> list[str]:
    """Prints `READY` and waits for the end of its input; then ends all processes whose mark matches, and runs the
    script `finish`."""
    return ["sh", "-c", f"{_HOLD}\n{_END if marks else ''}\n{finish}", "alipes", marks, ""]
