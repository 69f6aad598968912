"""The step of the schema for summaries that stand for what was said, and for what was spent on the side."""

STEP: tuple[str, ...] = ()
