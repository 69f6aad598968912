"""The settings of models that work beside the one that answers: what each does, and what all may cost."""

from alipes.config.key import Key

SIDE_KEYS: tuple[Key, ...] = ()
