"""What the plugin is made of, in a module of its own: reached by a relative import."""

NOTHING = {"name": "anything", "description": "Whatever.", "parameters": {"type": "object", "properties": {}}}


class Voice:
    def __init__(self, family):
        self.name = f"a {family}"


def echo(args, task_id=None, **kwargs):
    return args
