"""Programs that publish, or delete what is elsewhere, by their subcommand or the shape of their arguments."""

from typing import TypeVar

from alipes.agent.approval.risk import Risk

T = TypeVar("T")
_PUBLISH = Risk("publish", "publishes a package or deployment, which cannot be undone", "remote")
_DESTROY = Risk("destroy", "deletes or publishes data that may not be recoverable", "remote")
CLOUD_PROGRAMS = (
    "terraform tofu pulumi kubectl aws gcloud az heroku flyctl fly doctl oci linode-cli hcloud vercel netlify gsutil"
)
_CLOUD_DELETES = (
    r"(?:.* )?(?:destroy|delete\S*|drain|rm|rb|terminate-\S+|apps:destroy|(?:apply|create|replace) .*https?://"
    r"|apply .*-auto-approve)\b"
)


def for_each(names: str, thing: T) -> dict[str, T]:
    """The same value for several space-separated names."""
    return dict.fromkeys(names.split(), thing)


SUBCOMMANDS: dict[str, list[tuple[str, Risk]]] = {
    **for_each(
        "npm pnpm yarn bun cargo poetry uv hatch flit pdm vsce gem twine dart mvn",
        [(r"(?:npm )?(?:un)?publish\b|push\b|upload\b|yank\b|deploy\b|owner (?:add|rm)\b", _PUBLISH)],
    ),
    "helm": [(r"push\b", _PUBLISH), (r"uninstall\b|delete\b|rollback\b", _DESTROY)],
    **for_each(
        "docker podman nerdctl",
        [
            (
                r"(?:image )?push\b|\w* ?prune\b|volume rm\b|rm .*-v|system reset|compose .*down .*(?:-v|--vol)",
                _DESTROY,
            ),
            (r"(?:container )?(?:rm|kill|stop) .*\0", _DESTROY),
        ],
    ),
    "gh": [
        (
            r"repo (?:create|delete|archive|rename|edit)|release (?:create|delete|upload|edit)|secret "
            r"|variable (?:set|delete)|gist (?:create|edit|delete)|pr merge .*--admin|workflow (?:run|enable|disable)"
            r"|(?:ssh|gpg|deploy)-key "
            r"|repo deploy-key|api .*(?:-X|--method)[ =]?(?:DELETE|PUT|PATCH|POST)|run (?:delete|rerun)|cache delete",
            _DESTROY,
        )
    ],
    "glab": [(r"config get .*token|auth |token |variable |repo delete|release (?:create|delete)|ci run", _DESTROY)],
    **for_each(CLOUD_PROGRAMS, [(_CLOUD_DELETES, _DESTROY)]),
    "redis-cli": [(r"(?i).*(?:flush(?:all|db)|shutdown|config set|slaveof|eval )", _DESTROY)],
    "dropdb": [(r".", _DESTROY)],
}
"""By program: patterns for the start of its joined arguments that need approval, and the risk."""
