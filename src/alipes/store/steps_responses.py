"""The step of the schema for answers that a caller may build on."""

STEP: tuple[str, ...] = ()
