"""Callbacks are called with what their signature takes."""

from functools import partial

import pytest

from alipes.compat.hermes.call import ExtraValue, LazyValue, PluginCallback

OFFERED = {"tool_name": "terminal", "args": {"a": 1}, "session_id": "s"}


def test_a_callback_gets_the_keywords_it_names():
    assert PluginCallback(lambda tool_name: tool_name)(**OFFERED) == "terminal"
    assert PluginCallback(lambda: "none")(**OFFERED) == "none"


def test_a_callback_with_open_keywords_gets_all():
    assert PluginCallback(lambda **kw: kw)(**OFFERED) == OFFERED
    assert PluginCallback(lambda args, **kw: (args, kw))(**OFFERED) == (
        {"a": 1},
        {"tool_name": "terminal", "session_id": "s"},
    )


def test_what_is_added_to_the_contract_is_only_for_who_names_it():
    offered = {**OFFERED, "turn": ExtraValue(LazyValue(lambda: "made"))}
    assert PluginCallback(lambda **kw: kw)(**offered) == OFFERED
    assert PluginCallback(lambda turn, **kw: (turn, kw))(**offered) == ("made", OFFERED)
    assert PluginCallback(lambda turn, /: turn)(**offered) == "made"


def test_positional_only_parameters_are_given_by_position():
    def callback(tool_name, /, args, *, session_id):
        return tool_name, args, session_id

    assert PluginCallback(callback)(**OFFERED) == ("terminal", {"a": 1}, "s")


def test_a_positional_only_parameter_nobody_offers_keeps_its_default():
    def callback(tool_name, other=5, /):
        return tool_name, other

    assert PluginCallback(callback)(**OFFERED) == ("terminal", 5)


def test_partials_methods_and_callable_objects_are_callbacks():
    class Thing:
        def method(self, session_id):
            return session_id

        def __call__(self, tool_name):
            return tool_name

    assert PluginCallback(partial(lambda kind, tool_name: (kind, tool_name), "x"))(**OFFERED) == ("x", "terminal")
    assert PluginCallback(Thing().method)(**OFFERED) == "s"
    assert PluginCallback(Thing())(**OFFERED) == "terminal"


def test_a_required_parameter_nobody_offers_is_none():
    assert PluginCallback(lambda tool_name, params: (tool_name, params))(**OFFERED) == ("terminal", None)


def test_what_is_given_comes_first_whatever_the_parameter_is_called():
    assert PluginCallback(lambda params, **kw: (params, kw))({"x": 1}, task_id="t") == ({"x": 1}, {"task_id": "t"})
    assert PluginCallback(lambda *values: values)(1, 2, task_id="t") == (1, 2)
    assert PluginCallback(lambda: "no room")({"x": 1}) == "no room"


def test_a_costly_value_is_made_only_if_it_is_taken():
    made = []
    costly = LazyValue(lambda: made.append(1) or "history")
    assert PluginCallback(lambda session_id: session_id)(session_id="s", conversation_history=costly) == "s"
    assert made == []
    assert PluginCallback(lambda conversation_history: conversation_history)(conversation_history=costly) == "history"
    assert PluginCallback(lambda **kw: kw)(conversation_history=costly) == {"conversation_history": "history"}
    assert made == [1, 1]


def test_functions_written_in_c_are_given_everything():
    assert PluginCallback(dict)(**OFFERED) == OFFERED


def test_async_callbacks_are_known_in_every_form():
    async def function(): ...

    class Thing:
        async def method(self): ...

        async def __call__(self): ...

    for callback in (function, partial(function), Thing().method, Thing()):
        assert PluginCallback(callback).is_async
    for callback in (lambda: None, dict, Thing):
        assert not PluginCallback(callback).is_async


def test_what_cannot_be_called_is_refused():
    with pytest.raises(TypeError, match="is not callable"):
        PluginCallback("text")
