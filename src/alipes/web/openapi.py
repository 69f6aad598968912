"""Builds the OpenAPI document from the endpoints."""

import http
import re
from collections.abc import Iterable, Sequence
from typing import Any, get_args

import msgspec

from alipes import __version__
from alipes.web.endpoint import JSON_PROBLEM, ApiEndpoint, ErrorFormat, OpenAiErrorDocument, ProblemDocument

_REFERENCE = "#/components/schemas/{name}"
_ALWAYS = (401, 403, 429, 503, 504)
_WITH_BODY = (400, 408, 413, 415)
_NAMES = re.compile(r"\{(\w+)\}")
_EVENT = {
    "type": "object",
    "description": "One event: its name, its id, and its data as text.",
    "properties": {name: {"type": "string"} for name in ("event", "id", "data")},
    "required": ["data"],
}


def openapi_document(endpoints: Sequence[ApiEndpoint]) -> bytes:
    """The document as JSON, including the health and metrics paths."""
    used = (type_ for each in endpoints for type_ in (each.body, each.query, each.answer))
    types = [*filter(None, used), ProblemDocument, OpenAiErrorDocument]
    made, components = msgspec.json.schema_components(types, ref_template=_REFERENCE)
    schemas = dict(zip(map(repr, types), made, strict=True))
    paths: dict[str, dict[str, Any]] = {path: {"get": operation} for path, operation in _status_paths()}
    for endpoint in endpoints:
        operation = _operation(endpoint, schemas, components)
        paths.setdefault(endpoint.path, {})[endpoint.method.lower()] = operation
    return msgspec.json.encode(
        {
            "openapi": "3.1.0",
            "info": {"title": "alipes", "version": __version__},
            "paths": paths,
            "components": {
                "schemas": components,
                "responses": {
                    _error_component(status, shape): _error_response(status, shape, schemas)
                    for shape in get_args(ErrorFormat)
                    for status in sorted({status for each in endpoints for status in _error_statuses(each)})
                },
                "securitySchemes": {"key": {"type": "http", "scheme": "bearer"}},
            },
            "security": [{"key": []}],
        }
    )


def _status_paths() -> Iterable[tuple[str, dict[str, Any]]]:
    """Paths that need no key from this machine; from elsewhere all but `/health` do."""
    state = {"type": "object", "properties": {"status": {"type": "string"}}, "required": ["status"]}
    json = {"application/json": {"schema": state}}
    unknown = {"401": {"$ref": f"#/components/responses/{_error_component(401, 'problem')}"}}
    yield "/health", {"summary": "The process is alive.", "responses": _ok_response(json), "security": []}
    ready = {**_ok_response(json), "503": {"description": "Not ready, with the reasons.", "content": json}}
    figures = {"text/plain": {"schema": {"type": "string"}}}
    free: list[dict[str, list[str]]] = [{}, {"key": []}]
    summary = "Whether we can receive and answer, and if not, why."
    yield "/ready", {"summary": summary, "responses": {**ready, **unknown}, "security": free}
    summary = "Metrics in Prometheus text format."
    yield ("/metrics", {"summary": summary, "responses": {**_ok_response(figures), **unknown}, "security": free})


def _ok_response(content: dict[str, Any]) -> dict[str, Any]:
    return {"200": {"description": _phrase(200), "content": content}}


def _operation(endpoint: ApiEndpoint, schemas: dict[str, Any], components: dict[str, Any]) -> dict[str, Any]:
    operation: dict[str, Any] = {
        "operationId": "_".join([endpoint.method.lower(), *re.findall(r"\w+", endpoint.path)]),
        "summary": endpoint.summary,
        "description": _describe_scope(endpoint),
        "parameters": list(_parameters(endpoint, schemas, components)),
        "responses": {str(endpoint.status): _success_response(endpoint, schemas)},
    }
    for status in sorted(_error_statuses(endpoint)):
        reference = f"#/components/responses/{_error_component(status, endpoint.error_format)}"
        operation["responses"][str(status)] = {"$ref": reference}
    if endpoint.body is not None:
        required = any(field.required for field in msgspec.structs.fields(endpoint.body))
        content = {"application/json": {"schema": schemas[repr(endpoint.body)]}}
        operation["requestBody"] = {"required": required, "content": content}
    if endpoint.raw_body:
        operation["requestBody"] = {"required": False, "content": {"application/octet-stream": {"schema": {}}}}
    return operation


def _describe_scope(endpoint: ApiEndpoint) -> str:
    also = ", or a browser that may read" if endpoint.readable else ""
    return f"Needs the scope `{endpoint.scope}`{also}."


def _error_statuses(endpoint: ApiEndpoint) -> set[int]:
    found = {*_ALWAYS, *endpoint.errors}
    if endpoint.body is not None:
        found |= {*_WITH_BODY}
    if endpoint.raw_body:
        found |= {400, 408, 413}
    if endpoint.query is not None or (endpoint.body is not None and endpoint.error_format == "problem"):
        found.add(422)
    if "{" in endpoint.path:
        found.add(404)
    return found - {endpoint.status}


def _error_component(status: int, shape: ErrorFormat) -> str:
    """Name of an error response in the components."""
    return f"{_phrase(status).replace(' ', '').replace('-', '')}{'AsOpenAI' if shape == 'openai' else ''}"


def _parameters(endpoint: ApiEndpoint, schemas: dict[str, Any], components: dict[str, Any]) -> Iterable[dict[str, Any]]:
    for name in _NAMES.findall(endpoint.path):
        yield {"name": name, "in": "path", "required": True, "schema": {"type": "string", "minLength": 1}}
    if endpoint.query is not None:
        query = schemas[repr(endpoint.query)]
        if "$ref" in query:
            query = components[query["$ref"].rpartition("/")[2]]
        required = query.get("required", ())
        for name, schema in query["properties"].items():
            yield {"name": name, "in": "query", "required": name in required, "schema": schema}
    for name, what in endpoint.headers.items():
        yield {"name": name, "in": "header", "description": what, "schema": {"type": "string"}}


def _success_response(endpoint: ApiEndpoint, schemas: dict[str, Any]) -> dict[str, Any]:
    content: dict[str, Any] = {}
    if endpoint.answer is not None:
        content["application/json"] = {"schema": schemas[repr(endpoint.answer)]}
    if endpoint.streams:
        content["text/event-stream"] = {"schema": _EVENT}
    operation: dict[str, Any] = {"description": _phrase(endpoint.status)}
    return {**operation, "content": content} if content else operation


def _error_response(status: int, shape: ErrorFormat, schemas: dict[str, Any]) -> dict[str, Any]:
    openai = shape == "openai"
    media = "application/json" if openai else JSON_PROBLEM
    schema = schemas[repr(OpenAiErrorDocument if openai else ProblemDocument)]
    operation: dict[str, Any] = {"description": _phrase(status), "content": {media: {"schema": schema}}}
    if status == 429:
        retry_after = {"schema": {"type": "integer"}, "description": "Seconds to wait."}
        operation["headers"] = {"Retry-After": retry_after}
    return operation


def _phrase(status: int) -> str:
    return http.HTTPStatus(status).phrase
