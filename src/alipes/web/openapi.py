"""The OpenAPI document of the endpoints, made from what each says of itself. It serves nothing."""

import http
import re
from collections.abc import Iterable, Sequence
from typing import Any

import msgspec

from alipes import __version__
from alipes.web.endpoint import JSON_PROBLEM, Endpoint, OpenAiErrorDocument, ProblemDocument, Shape

_REFERENCE = "#/components/schemas/{name}"
SHAPES: tuple[Shape, ...] = ("problem", "openai")
_ALWAYS = (401, 403, 429, 503, 504)
_WITH_BODY = (400, 408, 413, 415)
_NAMES = re.compile(r"\{(\w+)\}")
_HEADER = {"type": "string"}
_EVENT = {
    "type": "object",
    "description": "One of the events: its name, its number, and its data as text.",
    "properties": {name: {"type": "string"} for name in ("event", "id", "data")},
    "required": ["data"],
}


def document(endpoints: Sequence[Endpoint]) -> bytes:
    """As JSON, with what is told of ourselves beside the endpoints."""
    kinds = [kind for each in endpoints for kind in (each.body, each.query, each.answer) if kind is not None]
    kinds += [ProblemDocument, OpenAiErrorDocument]
    schemas, components = msgspec.json.schema_components(kinds, ref_template=_REFERENCE)
    known = dict(zip(map(repr, kinds), schemas, strict=True))
    paths: dict[str, dict[str, Any]] = {path: {"get": told} for path, told in _ourselves()}
    for each in endpoints:
        paths.setdefault(each.path, {})[each.method.lower()] = _operation(each, known, components)
    return msgspec.json.encode(
        {
            "openapi": "3.1.0",
            "info": {"title": "alipes", "version": __version__},
            "paths": paths,
            "components": {
                "schemas": components,
                "responses": {
                    _refusal(status, shape): _refused(status, shape, known)
                    for shape in SHAPES
                    for status in sorted({status for each in endpoints for status in _refusals(each)})
                },
                "securitySchemes": {"key": {"type": "http", "scheme": "bearer"}},
            },
            "security": [{"key": []}],
        }
    )


def _ourselves() -> Iterable[tuple[str, dict[str, Any]]]:
    """How we are: on this machine without a key, from elsewhere with one, but for `/health`."""
    state = {"type": "object", "properties": {"status": {"type": "string"}}, "required": ["status"]}
    json = {"application/json": {"schema": state}}
    unknown = {"401": {"$ref": f"#/components/responses/{_refusal(401, 'problem')}"}}
    yield "/health", {"summary": "The process lives.", "responses": _answered(json), "security": []}
    ready = {**_answered(json), "503": {"description": "Not ready, and why.", "content": json}}
    figures = {"text/plain": {"schema": {"type": "string"}}}
    free: list[dict[str, list[str]]] = [{}, {"key": []}]
    summary = "Can we receive and answer? Else why not."
    yield "/ready", {"summary": summary, "responses": {**ready, **unknown}, "security": free}
    summary = "Figures, as Prometheus reads them."
    yield "/metrics", {"summary": summary, "responses": {**_answered(figures), **unknown}, "security": free}


def _answered(content: dict[str, Any]) -> dict[str, Any]:
    return {"200": {"description": _phrase(200), "content": content}}


def _operation(endpoint: Endpoint, known: dict[str, Any], components: dict[str, Any]) -> dict[str, Any]:
    told: dict[str, Any] = {
        "operationId": _name(endpoint),
        "summary": endpoint.summary,
        "description": f"Needs the scope `{endpoint.scope}`.",
        "parameters": [
            *_in_path(endpoint),
            *_in_query(endpoint, known, components),
            *_in_headers(endpoint),
        ],
        "responses": {str(endpoint.status): _given(endpoint, known)},
    }
    for status in sorted(_refusals(endpoint)):
        reference = f"#/components/responses/{_refusal(status, endpoint.shape)}"
        told["responses"][str(status)] = {"$ref": reference}
    if endpoint.body is not None:
        required = any(field.required for field in msgspec.structs.fields(endpoint.body))
        content = {"application/json": {"schema": known[repr(endpoint.body)]}}
        told["requestBody"] = {"required": required, "content": content}
    return told


def _name(endpoint: Endpoint) -> str:
    words = re.findall(r"\w+", endpoint.path)
    return "_".join([endpoint.method.lower(), *words])


def _refusals(endpoint: Endpoint) -> set[int]:
    return {*_ALWAYS, *_mistakes(endpoint), *endpoint.errors} - {endpoint.status}


def _refusal(status: int, shape: Shape) -> str:
    """The name of a refusal among the components."""
    return f"{_phrase(status).replace(' ', '').replace('-', '')}{'AsOpenAI' if shape == 'openai' else ''}"


def _mistakes(endpoint: Endpoint) -> Iterable[int]:
    if endpoint.body is not None:
        yield from _WITH_BODY
        if endpoint.shape == "problem":
            yield 422
    if endpoint.query is not None:
        yield 422
    if "{" in endpoint.path:
        yield 404


def _in_path(endpoint: Endpoint) -> list[dict[str, Any]]:
    return [
        {"name": name, "in": "path", "required": True, "schema": {"type": "string", "minLength": 1}}
        for name in _NAMES.findall(endpoint.path)
    ]


def _in_query(endpoint: Endpoint, known: dict[str, Any], components: dict[str, Any]) -> list[dict[str, Any]]:
    if endpoint.query is None:
        return []
    schema = known[repr(endpoint.query)]
    if "$ref" in schema:
        schema = components[schema["$ref"].rpartition("/")[2]]
    required = schema.get("required", ())
    return [
        {"name": name, "in": "query", "required": name in required, "schema": each}
        for name, each in schema["properties"].items()
    ]


def _in_headers(endpoint: Endpoint) -> list[dict[str, Any]]:
    return [
        {"name": name, "in": "header", "description": what, "schema": _HEADER}
        for name, what in endpoint.headers.items()
    ]


def _given(endpoint: Endpoint, known: dict[str, Any]) -> dict[str, Any]:
    content: dict[str, Any] = {}
    if endpoint.answer is not None:
        content["application/json"] = {"schema": known[repr(endpoint.answer)]}
    if endpoint.streams:
        content["text/event-stream"] = {"schema": _EVENT}
    told: dict[str, Any] = {"description": _phrase(endpoint.status)}
    return {**told, "content": content} if content else told


def _refused(status: int, shape: Shape, known: dict[str, Any]) -> dict[str, Any]:
    openai = shape == "openai"
    media = "application/json" if openai else JSON_PROBLEM
    schema = known[repr(OpenAiErrorDocument if openai else ProblemDocument)]
    told: dict[str, Any] = {"description": _phrase(status), "content": {media: {"schema": schema}}}
    if status == 429:
        told["headers"] = {"Retry-After": {"schema": {"type": "integer"}, "description": "Seconds to wait."}}
    return told


def _phrase(status: int) -> str:
    return http.HTTPStatus(status).phrase
