"""Middleware of all four kinds: two change what is asked for, two stand around what is done."""

calls = []


def llm_request(request, original_request, **kwargs):
    calls.append(("llm_request", sorted(kwargs)))
    messages = [*request["messages"], {"role": "user", "content": "and be brief"}]
    return {"request": {**request, "messages": messages, "temperature": 0.1}, "source": "between"}


def tool_request(tool_name, args, original_args, **kwargs):
    calls.append(("tool_request", tool_name, sorted(kwargs)))
    return {"args": {**args, "command": args["command"].replace("loud", "quiet")}, "reason": "it was loud"}


def llm_execution(request, next_call, **kwargs):
    calls.append(("llm_execution before", request["messages"][-1]["content"]))
    response = next_call(request)
    calls.append(("llm_execution after", response.choices[0].message.content))
    if response.choices[0].message.content == "a draft":
        response.choices[0].message.content = "the final words"
    return response


async def tool_execution(tool_name, args, next_call, **kwargs):
    calls.append(("tool_execution before", args["command"]))
    result = await next_call(args)
    calls.append(("tool_execution after", "quiet" in result))
    return result.replace("quiet", "QUIET")


def register(ctx):
    for kind in (llm_request, tool_request, llm_execution, tool_execution):
        assert ctx.register_middleware(kind.__name__, kind)
