"""A file hook in the original's style."""

from hermes_constants import get_hermes_home


async def handle(event_type, context):
    with open(get_hermes_home() / "reported.txt", "a", encoding="utf-8") as file:
        file.write(f"{event_type} {context.get('status') or context.get('reason') or ''}".strip() + "\n")
