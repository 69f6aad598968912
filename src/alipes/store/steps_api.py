"""The step of the schema for what callers over HTTP may do, and what they were answered."""

STEP: tuple[str, ...] = ()
