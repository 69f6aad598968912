"""The endpoints that OpenAI's clients know: chat completions, responses, models."""

from alipes.web.endpoints import Endpoint, House
from alipes.web.openai_chat import Chat, Completion
from alipes.web.openai_documents import ResponseDeleted, ResponseDocument
from alipes.web.openai_models import Listing, Model, Showroom
from alipes.web.openai_responses import Answers
from alipes.web.openai_turns import Turns
from alipes.web.openai_wire import ChatRequest, ResponseRequest

_FAILING = (400, 404, 409, 422, 500, 502)


def endpoints(house: House, *, workdir: str = "") -> tuple[Endpoint, ...]:
    """`workdir`: where the agent's tools work."""
    turns = Turns(house, workdir=workdir)
    return (*_chat(Chat(turns)), *_responses(Answers(house, turns)), *_models(Showroom(house)))


def _chat(chat: Chat) -> tuple[Endpoint, ...]:
    return (
        Endpoint(
            method="POST",
            path="/v1/chat/completions",
            scope="run",
            handle=chat.complete,
            summary="Answer a conversation; the agent's own tools are used meanwhile.",
            body=ChatRequest,
            answer=Completion,
            streams=True,
            errors=_FAILING,
            shape="openai",
        ),
    )


def _responses(answers: Answers) -> tuple[Endpoint, ...]:
    return (
        Endpoint(
            method="POST",
            path="/v1/responses",
            scope="run",
            handle=answers.create,
            summary="Make a response, alone or after another one.",
            body=ResponseRequest,
            answer=ResponseDocument,
            streams=True,
            errors=_FAILING,
            shape="openai",
        ),
        Endpoint(
            method="GET",
            path="/v1/responses/{id}",
            scope="read",
            handle=answers.show,
            summary="A response, finished or not.",
            answer=ResponseDocument,
            errors=(404,),
            shape="openai",
        ),
        Endpoint(
            method="DELETE",
            path="/v1/responses/{id}",
            scope="run",
            handle=answers.delete,
            summary="Forget a response; with the last one of a conversation, the conversation.",
            answer=ResponseDeleted,
            errors=(404,),
            shape="openai",
        ),
        Endpoint(
            method="POST",
            path="/v1/responses/{id}/cancel",
            scope="run",
            handle=answers.cancel,
            summary="Stop a response that is being made.",
            answer=ResponseDocument,
            errors=(404,),
            shape="openai",
        ),
    )


def _models(showroom: Showroom) -> tuple[Endpoint, ...]:
    listing = Endpoint(
        method="GET",
        path="/v1/models",
        scope="read",
        handle=showroom.all,
        summary="The models that may be named.",
        answer=Listing,
        shape="openai",
    )
    single = (
        Endpoint(
            method="GET",
            path=f"/v1/models/{path}",
            scope="read",
            handle=showroom.one,
            summary="One of the models, by its name.",
            answer=Model,
            errors=(404,),
            shape="openai",
        )
        for path in ("{id}", "{provider}/{id}", "{provider}/{family}/{id}")
    )
    return (listing, *single)
