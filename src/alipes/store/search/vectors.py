"""Embeddings of messages, as bits: one for each number that is positive. Near ones have a similar meaning."""

from collections.abc import Sequence

from alipes.store.search import index
from alipes.store.sql.connection import Connection

MAX_COMPARED = 50_000
"""Only the newest messages are compared, in about 30 milliseconds."""
MAX_SIMILAR = 50
MAX_SHARE = 0.41
"""Of bits that may differ; half of them do by chance."""
VECTORS = "vectors"


def to_bits(vector: Sequence[float]) -> bytes:
    """The signs of the numbers; a vector of zeros has none."""
    bits = "".join("1" if number > 0 else "0" for number in vector)
    return int(bits, 2).to_bytes((len(bits) + 7) // 8) if any(vector) else b""


def save_vectors(db: Connection, rows: Sequence[tuple[int, bytes]]) -> None:
    """Store the vectors of a batch from `index.next_batch`."""
    sql = """INSERT OR REPLACE INTO message_vectors SELECT number, ? FROM messages WHERE number = ?"""
    db.executemany(sql, [(vector, number) for number, vector in rows if vector])
    index.save_progress(db, VECTORS, [number for number, _ in rows])


def find_similar(db: Connection, wanted: bytes) -> list[int]:
    """Numbers of messages, the most similar first."""
    bits, size = int.from_bytes(wanted), len(wanted)
    sql = "SELECT number, vector FROM message_vectors ORDER BY number DESC LIMIT ?"
    near = [
        (distance, -number)
        for number, vector in db.execute(sql, (MAX_COMPARED,))
        if len(vector) == size  # else it was made by another provider
        and (distance := (int.from_bytes(vector) ^ bits).bit_count()) <= size * 8 * MAX_SHARE
    ]
    return [-number for _, number in sorted(near)[:MAX_SIMILAR]]
