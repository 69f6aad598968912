"""SQLite's and the system's complaints, translated into a sentence for whoever runs us. Opens nothing."""

import errno
import sqlite3
from pathlib import Path

import msgspec

from alipes.kernel.errors import StoreError

_SENTENCES = {
    sqlite3.SQLITE_FULL: "the disk of {path} is full and nothing was saved; make room and start again",
    sqlite3.SQLITE_IOERR: "the disk of {path} fails and nothing was saved; make room and check its health",
    sqlite3.SQLITE_READONLY: "the store {path} is read-only; make it writable or use another home",
    sqlite3.SQLITE_CANTOPEN: "the store {path} cannot be opened; open its folder to us or use another home",
    sqlite3.SQLITE_CORRUPT: "the store {path} is damaged; bring back a good backup with `alipes restore`",
    sqlite3.SQLITE_NOTADB: "the store {path} is damaged; bring back a good backup with `alipes restore`",
    sqlite3.SQLITE_BUSY: "another program keeps the store {path} locked; close it and start again",
    sqlite3.SQLITE_LOCKED: "another program keeps the store {path} locked; close it and start again",
}


def ours(error: BaseException, path: Path) -> BaseException:
    """What `error` means to whoever must act; a stranger's error stays as it is."""
    match error:
        case sqlite3.Error():
            code = getattr(error, "sqlite_errorcode", 0) & 0xFF
            if code == sqlite3.SQLITE_ERROR and "fts5" in str(error):
                code = sqlite3.SQLITE_CORRUPT  # what the index of words says of damage
            why = _SENTENCES.get(code, "the store {path} failed")
            sentence = f"{why.format(path=path)} ({error})"
        case msgspec.DecodeError():
            sentence = f"the store {path} holds a row that cannot be read ({error}); see `alipes doctor`"
        case OSError():
            return unusable(f"the store {path} cannot be opened", path, error)
        case _:
            return error
    return _because(sentence, error)


def unusable(what: str, path: Path, error: OSError) -> StoreError:
    """`what` cannot be done at `path`, and the way out of it."""
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return _because(f"{_SENTENCES[sqlite3.SQLITE_FULL].format(path=path)} ({error.strerror})", error)
    return _because(f"{what} ({error.strerror or error}); make it writable or use another home", error)


def _because(sentence: str, error: BaseException) -> StoreError:
    translated = StoreError(sentence)
    translated.__cause__ = error
    return translated
