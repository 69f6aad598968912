"""What somebody probably meant: the known words nearest to a mistyped one."""

from collections.abc import Iterable


def near(word: str, known: Iterable[str], count: int = 3) -> list[str]:
    """Up to `count` of `known`, nearest first; none when nothing is near.

    Our own few lines, because `difflib` costs as much to import as all of a small configuration to read.
    """
    wanted = word.lower()
    scored = sorted((_distance(wanted, each.lower()), each) for each in set(known) if each)
    return [each for distance, each in scored if distance <= max(1, min(len(wanted), len(each)) // 3)][:count]


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """` Did you mean a, b or c?`, or nothing."""
    found = near(word, known)
    if not found:
        return ""
    *first, last = found
    return f" Did you mean {', '.join(first) + ' or ' if first else ''}{last}?"


def _distance(one: str, other: str) -> int:
    """Insertions, deletions, changes and swaps of neighbours that turn `one` into `other`."""
    one, other = one[:64], other[:64]
    before: list[int] = []
    above = list(range(len(other) + 1))
    for i, a in enumerate(one):
        row = [i + 1]
        for j, b in enumerate(other):
            cost = min(above[j] + (a != b), above[j + 1] + 1, row[j] + 1)
            if i and j and a == other[j - 1] and one[i - 1] == b:
                cost = min(cost, before[j - 1] + 1)
            row.append(cost)
        before, above = above, row
    return above[-1]
