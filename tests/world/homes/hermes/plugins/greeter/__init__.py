def greet(args, **kwargs):
    return "Good morning, " + args.get("name", "you")


def register(ctx):
    schema = {
        "name": "greet",
        "description": "Say good morning",
        "parameters": {"type": "object", "properties": {"name": {"type": "string"}}},
    }
    ctx.register_tool("greet", "greeter", schema, greet)
