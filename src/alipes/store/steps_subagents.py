"""The step of the schema for turns that work for other turns."""

STEP: tuple[str, ...] = ()
