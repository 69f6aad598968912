"""Endpoints for people: who has access, pairing requests, roles, and taking access away."""

from typing import Annotated

from msgspec import Meta, Struct
from starlette.responses import Response

from alipes.core.app import App
from alipes.gateway.people import approve, find_person, is_listed, listed_people
from alipes.store.sql.people import CODE_VALID_S, Person, PersonRole
from alipes.web.control import refuse_invalid
from alipes.web.endpoint import ApiCall, ApiEndpoint, HttpProblem, json_response, no_content


class PersonDocument(Struct, frozen=True, omit_defaults=True):
    id: str
    """As in `telegram:7`."""
    platform: str
    user: str
    """The platform's id of the person; `*` is everybody."""
    name: str
    role: PersonRole
    since: float = 0.0
    settings: bool = False
    """True for a person whom config.toml names: change it there."""


class PairingDocument(Struct, frozen=True):
    """Somebody who asked for access. Only they know their code."""

    platform: str
    user: str
    name: str
    asked: float
    expires: float


class PeopleDocument(Struct, frozen=True):
    people: tuple[PersonDocument, ...]
    requests: tuple[PairingDocument, ...]


class PairBody(Struct, frozen=True, forbid_unknown_fields=True):
    code: Annotated[str, Meta(min_length=1, max_length=100)]
    role: PersonRole | None = None
    """null: `owner` for the first person, then `user`."""


class RoleBody(Struct, frozen=True, forbid_unknown_fields=True):
    role: PersonRole


class PeopleEndpoints:
    def __init__(self, app: App) -> None:
        self._app, self._people = app, app.store.people

    @ApiEndpoint("GET", "/v1/people", "admin", readable=True, answer=PeopleDocument)
    async def list(self, _call: ApiCall) -> Response:
        """List the people with access, and those who asked for it."""
        paired = [_person_document(each) for each in await self._people.all()]
        known = {each.id for each in paired}
        listed = (
            PersonDocument(id, each.platform, each.person, "", each.role, settings=True)
            for each in listed_people(self._app.settings)
            if (id := f"{each.platform}:{each.person}") not in known
        )
        requests = (
            PairingDocument(each.platform, each.person, each.name, each.created, each.created + CODE_VALID_S)
            for each in await self._people.list_requests()
        )
        return json_response(PeopleDocument((*paired, *listed), tuple(requests)))

    @ApiEndpoint("POST", "/v1/people/pair", "admin", body=PairBody, answer=PersonDocument)
    async def pair(self, call: ApiCall) -> Response:
        """Give access to the person who got this code."""
        body: PairBody = call.body
        with refuse_invalid(code="pairing_code"):
            return json_response(_person_document(await approve(self._people, body.code, body.role)))

    @ApiEndpoint("PATCH", "/v1/people/{id}", "admin", body=RoleBody, answer=PersonDocument, errors=(409,))
    async def change(self, call: ApiCall) -> Response:
        """Change the role of a person."""
        body: RoleBody = call.body
        person = await self._find(call)
        if not await self._people.set_role(person.platform, person.person, body.role):
            raise HttpProblem(404, f"{call.path['id']} no longer has access", code="no_person")
        return json_response(_person_document(await self._find(call)))

    @ApiEndpoint("DELETE", "/v1/people/{id}", "admin", status=204, errors=(409,))
    async def delete(self, call: ApiCall) -> Response:
        """Take access away from a person."""
        person = await self._find(call)
        await self._people.revoke_access(person.platform, person.person)
        if is_listed(self._app.settings, person):
            raise _listed_problem(person.platform, "pairing was revoked, but ")
        return no_content()

    async def _find(self, call: ApiCall) -> Person:
        id, people = call.path["id"], await self._people.all()
        platform, _, user = id.partition(":")
        paired = any((each.platform, each.person) == (platform, user) for each in people)
        if not paired and any(
            (each.platform, each.person) == (platform, user) for each in listed_people(self._app.settings)
        ):
            raise _listed_problem(platform)
        with refuse_invalid(404, "no_person"):
            return find_person(people, id)


def _listed_problem(platform: str, done: str = "") -> HttpProblem:
    why = f"{done}{platform}.allow or {platform}.owners in config.toml names this person: change it there, then restart"
    return HttpProblem(409, why, code="in_settings")


def _person_document(person: Person) -> PersonDocument:
    id = f"{person.platform}:{person.person}"
    return PersonDocument(id, person.platform, person.person, person.name, person.role, person.since)
