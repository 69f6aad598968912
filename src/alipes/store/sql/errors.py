"""Errors of SQLite and of the disk as sentences for the operator."""

import errno
import sqlite3
from pathlib import Path

import msgspec

from alipes.kernel.errors import StoreError
from alipes.runtime.process_setup import TOO_MANY_FILES, has_free_descriptors

_SENTENCES = {
    sqlite3.SQLITE_FULL: "the disk of {path} is full and nothing was saved; free some space and start again",
    sqlite3.SQLITE_IOERR: "the disk of {path} failed and nothing was saved; free space and check the disk",
    sqlite3.SQLITE_READONLY: "the store {path} is read-only; make it writable or use another home",
    sqlite3.SQLITE_CANTOPEN: "the store {path} cannot be opened; fix the permissions of its folder or use another home",
    sqlite3.SQLITE_CORRUPT: "the store {path} is damaged; restore a backup with `alipes restore`",
    sqlite3.SQLITE_NOTADB: "the store {path} is damaged; restore a backup with `alipes restore`",
    sqlite3.SQLITE_BUSY: "another program keeps the store {path} locked; close it and start again",
    sqlite3.SQLITE_LOCKED: "another program keeps the store {path} locked; close it and start again",
}


def translate_error(error: BaseException, path: Path) -> BaseException:
    """`error` as a `StoreError` with a sentence for the operator; unrelated errors are returned unchanged."""
    match error:
        case sqlite3.Error():
            code = getattr(error, "sqlite_errorcode", 0) & 0xFF
            if code == sqlite3.SQLITE_ERROR and "malformed JSON" in str(error):
                return _store_error(f"the store {path} contains a damaged row; `alipes doctor` names it", error)
            if code == sqlite3.SQLITE_ERROR and "fts5" in str(error):
                code = sqlite3.SQLITE_CORRUPT  # FTS5 reports a damaged index like this
            if code == sqlite3.SQLITE_CANTOPEN and not has_free_descriptors():
                return _store_error(f"the store {path} cannot be opened: {TOO_MANY_FILES}", error)
            sentence = _SENTENCES.get(code, "the store {path} failed").format(path=path) + f" ({error})"
        case msgspec.DecodeError():
            sentence = f"the store {path} contains a row that cannot be read ({error}); run `alipes doctor`"
        case OSError():
            return make_unusable_error(f"the store {path} cannot be opened", path, error)
        case _:
            return error
    return _store_error(sentence, error)


def make_unusable_error(problem: str, path: Path, error: OSError) -> StoreError:
    """A `StoreError` that says `problem`, its cause and the fix."""
    if error.errno in (errno.EMFILE, errno.ENFILE):
        return _store_error(f"{problem}: {TOO_MANY_FILES}", error)
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return _store_error(f"{_SENTENCES[sqlite3.SQLITE_FULL].format(path=path)} ({error.strerror})", error)
    return _store_error(f"{problem} ({error.strerror or error}); make it writable or use another home", error)


def is_disk_full(error: BaseException) -> bool:
    """True if an error made here was caused by a full disk."""
    cause = error.__cause__
    if isinstance(cause, OSError):
        return cause.errno in (errno.ENOSPC, errno.EDQUOT)
    return isinstance(cause, sqlite3.Error) and getattr(cause, "sqlite_errorcode", 0) & 0xFF == sqlite3.SQLITE_FULL


def _store_error(sentence: str, cause: BaseException) -> StoreError:
    error = StoreError(sentence)
    error.__cause__ = cause
    return error
