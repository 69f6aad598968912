"""Endpoints for skills: list, read, add, check, switch off, accept, roll back, remove."""

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, TypeAlias

from msgspec import Meta, Struct, structs
from starlette.responses import Response

from alipes.config.editor import change
from alipes.config.reader import read_config
from alipes.features.server import Server
from alipes.features.skills.cli.describe import describe_skill
from alipes.features.skills.commands import describe_change
from alipes.features.skills.feature import SkillsFeature
from alipes.features.skills.scan import SkillFinding, scan_skill
from alipes.features.skills.skill import Skill, SkillOrigin, SkillState
from alipes.features.skills.skills import MIN_HASH_CHARS, list_files, read_body
from alipes.features.skills.sources import FoundSkill, OfferedSkill, SkillSources
from alipes.features.skills.store import SkillUsage
from alipes.features.skills.versions import SkillVersion, hash_files, read_folder
from alipes.kernel.errors import ConfigError, ToolError
from alipes.tools.common import make_places
from alipes.web.control import ServerControl, refuse_invalid
from alipes.web.endpoint import ApiCall, ApiEndpoint, HttpProblem, endpoints_of, json_response, no_content

Hash: TypeAlias = Annotated[str, Meta(min_length=MIN_HASH_CHARS, max_length=64)]
OWNER = ""
"""The scope of the proposals for the owners of this home."""
_WAITING: tuple[SkillState, ...] = ("new", "changed")


class SkillDocument(Struct, frozen=True, omit_defaults=True):
    name: str
    description: str
    source: SkillOrigin
    path: str
    state: SkillState
    """`new`, `changed`: it has to be accepted before it is used; `shadowed`: another one has its name."""
    enabled: bool
    plugin: str = ""
    problem: str = ""
    """Why it cannot be used."""
    uses: int = 0
    """Turns that used it."""
    answered: int = 0
    failed: int = 0
    last: float = 0.0


class SkillList(Struct, frozen=True):
    skills: tuple[SkillDocument, ...]
    pending: int
    """Proposals that wait for a decision."""
    folder: str
    """Where the skills of this home are."""


class SkillVersionDocument(Struct, frozen=True):
    number: int
    created: float
    why: str
    removed: bool


class SkillDetails(SkillDocument, frozen=True, omit_defaults=True, kw_only=True):
    text: str = ""
    files: tuple[str, ...] = ()
    versions: tuple[SkillVersionDocument, ...] = ()
    """Oldest first."""
    remarks: tuple[str, ...] = ()
    license: str = ""
    compatibility: str = ""
    tools: tuple[str, ...] | None = None
    hash: str = ""
    """For a skill that has to be accepted: names the present files."""


class SkillChanges(Struct, frozen=True, forbid_unknown_fields=True):
    enabled: bool
    """False: off everywhere (`skills.off` in config.toml)."""


class AcceptBody(Struct, frozen=True, forbid_unknown_fields=True):
    hash: Hash
    """`hash` of the skill as it was shown."""


class SkillRollbackBody(Struct, frozen=True, forbid_unknown_fields=True):
    version: Annotated[int, Meta(ge=0, le=1_000_000_000)] = 0
    """0: the one before the last change."""


class SkillRollbackDocument(Struct, frozen=True):
    version: int
    """The number of the new version."""
    diff: str


class SkillSource(Struct, frozen=True, forbid_unknown_fields=True):
    source: Annotated[str, Meta(min_length=1, max_length=2_000)]
    """A folder of the server, the address of a Git repository or archive, or `owner/name` on GitHub."""


class OfferedSkills(Struct, frozen=True):
    skills: tuple[OfferedSkill, ...]


class NewSkill(Struct, frozen=True, forbid_unknown_fields=True):
    """A `source` that was looked at, with `name` and `sha256` of one of its skills; or the `text` of a new one."""

    source: Annotated[str, Meta(max_length=2_000)] = ""
    name: Annotated[str, Meta(max_length=200)] = ""
    sha256: Annotated[str, Meta(max_length=64)] = ""
    text: Annotated[str, Meta(max_length=200_000)] = ""
    """SKILL.md as a whole, with the name and description at its start."""


class SkillRemark(Struct, frozen=True):
    place: str
    """File and line."""
    kind: str
    """`hidden text`, `secret`, `command` or `instruction`."""
    says: str


class SkillCheck(Struct, frozen=True):
    remarks: tuple[SkillRemark, ...]
    """What a person should look at before the skill is used."""


class SkillEndpoints:
    def __init__(self, feature: SkillsFeature, control: ServerControl) -> None:
        self._app, self._control, self._skills = feature.app, control, feature.skills
        self._sources = SkillSources(feature.app.settings, self._describe_found)

    @ApiEndpoint("GET", "/v1/skills", "admin", readable=True, answer=SkillList)
    async def list(self, _call: ApiCall) -> Response:
        """List the skills of this home, of the working directory and of plugins."""
        listed, used = await self._skills.list(self._app.workdir), await self._skills.usage()
        pending = await self._app.store.proposals.list_pending(OWNER)
        documents = tuple(_skill_document(each, used.get(each.name)) for each in listed)
        return json_response(SkillList(documents, len(pending), str(self._skills.store.folder)))

    @ApiEndpoint("GET", "/v1/skills/{name}", "admin", readable=True, answer=SkillDetails)
    async def look(self, call: ApiCall) -> Response:
        """Get a skill with its text, files and versions."""
        return json_response(await self._describe(await self._find(call)))

    @ApiEndpoint("PATCH", "/v1/skills/{name}", "admin", body=SkillChanges, answer=SkillDetails, errors=(409,))
    async def change(self, call: ApiCall) -> Response:
        """Switch a skill off or on everywhere."""
        body: SkillChanges = call.body
        skill = await self._find(call)
        if skill.state not in ("on", "off"):
            raise HttpProblem(409, f"{skill.name} cannot be used. {skill.reason}", code="state")
        with refuse_invalid(409, "config"):
            off = await asyncio.to_thread(self._write_off, skill.name, off=not body.enabled)
        self._skills.set_off(off)
        self._app.store.changes.announce("skill", skill.name)
        return json_response(await self._describe(await self._find(call)))

    @ApiEndpoint("DELETE", "/v1/skills/{name}", "admin", status=204, errors=(409,))
    async def delete(self, call: ApiCall) -> Response:
        """Remove a skill of this home; its versions are kept."""
        skill = await self._find(call)
        with refuse_invalid(409, "not_removable"):
            await self._skills.remove(skill.name, skill)
        self._app.store.changes.announce("skill", skill.name)
        return no_content()

    @ApiEndpoint("POST", "/v1/skills/look", "admin", body=SkillSource, answer=OfferedSkills, errors=(409,))
    async def look_at_source(self, call: ApiCall) -> Response:
        """Fetch a source, and describe the skills in it. Nothing is installed."""
        body: SkillSource = call.body
        with refuse_invalid(409, "source"):
            return json_response(OfferedSkills(await self._sources.look(body.source)))

    @ApiEndpoint("POST", "/v1/skills", "admin", body=NewSkill, answer=SkillDetails, status=201, errors=(409,))
    async def add(self, call: ApiCall) -> Response:
        """Install a skill exactly as it was looked at, or write a new one."""
        body: NewSkill = call.body
        with refuse_invalid(409, "skill"):
            name = body.name
            if body.text:
                name = await self._sources.create(body.text)
            else:
                await self._sources.install(body.source, name, body.sha256)
            skill = await self._skills.find_any(self._app.workdir, name)
        self._app.store.changes.announce("skill", name)
        return json_response(await self._describe(skill), 201)

    @ApiEndpoint("POST", "/v1/skills/{name}/check", "admin", answer=SkillCheck, errors=(409,))
    async def check(self, call: ApiCall) -> Response:
        """Look in the files of a skill for hidden text, secrets, dangerous commands and instructions against rules."""
        skill = await self._find(call)
        with refuse_invalid(409):
            found = await asyncio.to_thread(self._scan, skill)
        mask = self._app.secrets
        return json_response(SkillCheck(tuple(SkillRemark(each.place, each.kind, mask(each.says)) for each in found)))

    def _scan(self, skill: Skill) -> tuple[SkillFinding, ...]:
        return tuple(scan_skill(read_folder(Path(skill.folder)), make_places(self._app.settings)))

    def _describe_found(self, found: FoundSkill, source: str) -> tuple[tuple[str, str], ...]:
        rows = describe_skill(self._app.settings, found.skill, found.files, source, found.folder)
        return tuple((label, self._app.secrets(text)) for label, text in rows if label)

    @ApiEndpoint("POST", "/v1/skills/{name}/accept", "admin", body=AcceptBody, answer=SkillDetails, errors=(409,))
    async def accept(self, call: ApiCall) -> Response:
        """Accept exactly the files that were shown, so that the skill can be used."""
        body: AcceptBody = call.body
        skill = await self._find(call)
        if skill.state not in _WAITING:
            raise HttpProblem(409, f"{skill.name} needs no acceptance", code="state")
        with refuse_invalid(409):
            if await self._skills.accept(skill, body.hash):
                why = f"the files of {skill.name} were changed since: look at them again"
                raise HttpProblem(409, why, code="changed")
        self._app.store.changes.announce("skill", skill.name)
        return json_response(await self._describe(await self._find(call)))

    @ApiEndpoint(
        "POST",
        "/v1/skills/{name}/rollback",
        "admin",
        body=SkillRollbackBody,
        answer=SkillRollbackDocument,
        errors=(409,),
    )
    async def rollback(self, call: ApiCall) -> Response:
        """Make an earlier version of a skill the present one; also brings a removed skill back."""
        body: SkillRollbackBody = call.body
        name = call.path["name"]
        if not await asyncio.to_thread(self._skills.store.versions.history, name):
            raise HttpProblem(404, f"the skill {name} has no stored versions", code="no_skill")
        with refuse_invalid(409, "no_version"):
            done = await self._skills.roll_back(name, body.version)
        self._app.store.changes.announce("skill", name)
        return json_response(SkillRollbackDocument(done.version, done.diff))

    async def _find(self, call: ApiCall) -> Skill:
        with refuse_invalid(404, "no_skill"):
            return await self._skills.find_any(self._app.workdir, call.path["name"])

    async def _describe(self, skill: Skill) -> SkillDetails:
        used = (await self._skills.usage()).get(skill.name)
        return await asyncio.to_thread(self._read_details, _skill_document(skill, used), skill)

    def _read_details(self, document: SkillDocument, skill: Skill) -> SkillDetails:
        text, digest = "", ""
        try:
            text = self._app.secrets(read_body(skill))
            if skill.state in _WAITING:
                digest = hash_files(read_folder(Path(skill.folder)))
        except (ToolError, ConfigError) as error:
            document = structs.replace(document, problem=document.problem or str(error))
        versions = self._skills.store.versions.history(skill.name) if skill.origin == "home" else ()
        return SkillDetails(
            **structs.asdict(document),
            text=text,
            files=tuple(list_files(skill)),
            versions=tuple(map(_version_document, versions)),
            remarks=skill.remarks,
            license=skill.license,
            compatibility=skill.compatibility,
            tools=skill.allowed_tools,
            hash=digest,
        )

    def _write_off(self, name: str, *, off: bool) -> tuple[str, ...]:
        """Write `skills.off`; returns what is off now. Raises ConfigError."""
        home, environ = self._app.settings.home, self._control.environ
        found = read_config(home, environ).effective("skills", "off")
        if found.layer == "variable":
            raise ConfigError("the environment sets skills.off (ALIPES_SKILLS_OFF): change it there")
        names = [str(each) for each in found.value or ()] if isinstance(found.value, list) else []
        after = [*dict.fromkeys([*names, name])] if off else [each for each in names if each != name]
        if after != names:
            change({("skills", "off"): list(after)}, home=home, environ=environ)
        return tuple(after)


def _skill_document(skill: Skill, used: SkillUsage | None) -> SkillDocument:
    return SkillDocument(
        skill.name,
        skill.description,
        skill.origin,
        skill.folder,
        skill.state,
        skill.state == "on",
        plugin=skill.owner,
        problem=skill.reason,
        uses=used.uses if used else 0,
        answered=used.answered if used else 0,
        failed=used.failed if used else 0,
        last=used.last if used else 0.0,
    )


def _version_document(version: SkillVersion) -> SkillVersionDocument:
    return SkillVersionDocument(version.number, version.when, describe_change(version.change), removed=version.removed)


def endpoints(feature: SkillsFeature, server: Server) -> Iterator[ApiEndpoint]:
    return endpoints_of(SkillEndpoints(feature, server.control))
