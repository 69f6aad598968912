"""The step of the schema for turns that work for other turns."""

STEP: tuple[str, ...] = (
    """CREATE INDEX turns_by_origin ON turns (json_extract(inbound, '$.origin.session'))
        WHERE platform = 'subagent'""",
)
