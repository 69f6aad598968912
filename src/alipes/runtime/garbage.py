"""When Python looks for garbage that refers to itself: seldom, and never through what stays for good."""

import gc

SELDOM = (5_000, 20, 20)
"""New things before the young are looked through; how often that, before the older; and that, before all."""


def stay() -> None:
    """What is there now stays as long as we do: it is not looked through again.

    A look through all that a thousand conversations hold stops the loop for a fifth of a second; most of
    what it finds has stood there since the start.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(*SELDOM)
