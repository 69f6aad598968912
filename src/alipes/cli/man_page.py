"""x"""


def run(argv: list[str]) -> int:
    return 0
