"""Endpoints for proposals: list and decide."""

from collections.abc import Iterator
from typing import Annotated, Literal

from msgspec import Meta, Struct, structs
from starlette.responses import Response

from alipes.features.learning.feature import LearningFeature
from alipes.features.learning.learning import decode_skill
from alipes.features.memory.change import OWNER, MemoryOrigin
from alipes.features.memory.files import FILE_NAMES
from alipes.features.memory.memory import describe_change
from alipes.features.memory.service import decode_edit
from alipes.features.server import Server
from alipes.kernel.errors import ConfigError, ToolError
from alipes.store.sql.proposals import Proposal, ProposalKind
from alipes.web.control import refuse_invalid
from alipes.web.endpoint import ApiCall, ApiEndpoint, HttpProblem, endpoints_of, json_response


class ProposalDocument(Struct, frozen=True, omit_defaults=True):
    id: str
    kind: ProposalKind
    name: str
    """The skill, or the file of notes."""
    reason: str
    session: str
    run: str
    created: float
    text: str = ""
    """The text that would be saved; it may be changed when it is accepted."""
    diff: str = ""
    problem: str = ""
    """Why it cannot be carried out now."""
    sources: tuple[str, ...] = ()
    """Text of strangers that the conversation had read."""


class ProposalList(Struct, frozen=True):
    proposals: tuple[ProposalDocument, ...]


class ProposalDecision(Struct, frozen=True, forbid_unknown_fields=True):
    action: Literal["accept", "reject"]
    text: Annotated[str, Meta(max_length=1_000_000)] = ""
    """With `accept`: save this text instead."""


class DecidedProposal(Struct, frozen=True):
    done: str
    """What was done, in words."""


class ProposalEndpoints:
    def __init__(self, feature: LearningFeature) -> None:
        self._app, self._learning = feature.app, feature.learning
        self._proposals = feature.app.store.proposals

    @ApiEndpoint("GET", "/v1/skills/pending", "admin", readable=True, answer=ProposalList)
    async def list(self, _call: ApiCall) -> Response:
        """List the proposed changes of skills and notes that wait for a decision, oldest first."""
        found = [await self._describe(each) for each in await self._proposals.list_pending(OWNER)]
        return json_response(ProposalList(tuple(found)))

    @ApiEndpoint(
        "POST", "/v1/skills/pending/{id}", "admin", body=ProposalDecision, answer=DecidedProposal, errors=(409,)
    )
    async def decide(self, call: ApiCall) -> Response:
        """Accept or reject a proposal."""
        body: ProposalDecision = call.body
        proposal = await self._proposals.find(call.path["id"])
        if proposal is None or proposal.scope != OWNER:
            raise HttpProblem(404, f"there is no proposal {call.path['id']}", code="no_proposal")
        if proposal.state != "pending":
            raise _decided_problem(proposal.state)
        if body.action == "reject":
            if not await self._proposals.decide(proposal.id, "rejected", "person"):
                raise _decided_problem("decided")
            return json_response(DecidedProposal("Rejected; nothing was changed."))
        with refuse_invalid(409, "not_applicable"):
            return json_response(DecidedProposal(await self._accept(proposal, body.text)))

    async def _accept(self, proposal: Proposal, text: str) -> str:
        if proposal.kind == "memory":
            edit, origin = decode_edit(proposal), MemoryOrigin("person")
            edit = structs.replace(edit, content=text.strip()) if text.strip() else edit
            made = await self._learning.memory.accept(proposal, edit, origin)
            if made is None:
                raise _decided_problem("decided")
            return describe_change(made)
        if text.strip():
            await self._learning.replace_text(proposal, text)
            proposal = await self._proposals.find(proposal.id) or proposal
        done = await self._learning.accept(proposal)
        self._app.store.changes.announce("skill", decode_skill(proposal).name)
        return done

    async def _describe(self, proposal: Proposal) -> ProposalDocument:
        diff = problem = ""
        try:
            diff = await self._learning.diff(proposal)
        except (ToolError, ConfigError) as error:
            problem = str(error)
        if proposal.kind == "memory":
            edit = decode_edit(proposal)
            name, text = FILE_NAMES[edit.target], edit.content
        else:
            skill = decode_skill(proposal)
            name, text = skill.name, skill.text
        mask = self._app.secrets
        return ProposalDocument(
            proposal.id,
            proposal.kind,
            name,
            proposal.reason,
            proposal.session,
            proposal.turn,
            proposal.created,
            text=mask(text),
            diff=mask(diff),
            problem=problem,
            sources=proposal.sources,
        )


def _decided_problem(state: str) -> HttpProblem:
    return HttpProblem(409, f"this proposal was {state} already", code="decided")


def endpoints(feature: LearningFeature, _server: Server) -> Iterator[ApiEndpoint]:
    return endpoints_of(ProposalEndpoints(feature))
