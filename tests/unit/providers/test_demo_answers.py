"""The demo model says what it is, and does not pretend to act."""

import pytest

from alipes.providers.demo_answers import ABOUT, CANNOT_ACT, claims_action, fixed_answer


@pytest.mark.parametrize(
    "text",
    [
        "what can you do?",
        "What can you do for me?",
        "hi, what can you do",
        "Hello! Who are you?",
        "what are you",
        "what is this?",
        "how can you help me?",
        "how do you work",
        "how do I use this?",
        "tell me about yourself",
        "what are your capabilities?",
        "list your features",
        "can you help me?",
        "what can I ask?",
        "what model are you?",
        "help",
        "?",
        "was kannst du?",
        "que peux-tu faire ?",
    ],
)
def test_questions_about_the_program_get_the_true_answer(text):
    assert fixed_answer(text) == ABOUT


@pytest.mark.parametrize(
    "text",
    [
        "List the files",
        "what is in this folder?",
        "can you run the tests?",
        "please fix the bug in app.py",
        "find out why the tests fail, and fix it",
        "summarise @README.md in three sentences",
        "create a file hello.txt",
        "delete ./build",
        "which files are here",
        "what's the weather in Rome",
        "explain this project",
        "run git status",
    ],
)
def test_a_task_is_refused_instead_of_pretended(text):
    assert fixed_answer(text) == CANNOT_ACT
    assert fixed_answer(text, may_act=True) == ""


@pytest.mark.parametrize(
    "text",
    [
        "hello",
        "say hi in French",
        "what is the capital of France?",
        "tell me a joke",
        "write a poem about the sea",
        "why is the sky blue?",
        "who wrote Faust?",
        "explain gravity",
    ],
)
def test_chat_is_left_to_the_model(text):
    assert fixed_answer(text) == ""


@pytest.mark.parametrize(
    "text", ["I have created the file.", "I've listed them.", "Here are the files:", "I will run it"]
)
def test_a_claimed_action_is_recognised(text):
    assert claims_action(text)


@pytest.mark.parametrize("text", ["The sky is blue.", "You can create a file.", "I am a model."])
def test_other_answers_are_no_claims(text):
    assert not claims_action(text)
