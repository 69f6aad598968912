"""`/hooks`: shows the shell hooks that are declared, and takes the person's word on each. It runs none."""

from collections.abc import Mapping

from alipes.compat.hermes.consent import Consents
from alipes.config.plugins import ShellHook
from alipes.hooks.offers import CommandAct
from alipes.kernel.turns import Inbound

HELP = "show the shell hooks, and say which may run"
HOW = "nobody has allowed it as it is now; `/hooks` in the terminal shows it, `/hooks allow N` allows it"
_HERE = "terminal"


def allowing(declared: Mapping[str, tuple[ShellHook, ...]], consents: Consents) -> CommandAct:
    """The command. Only who sits at this machine may say what runs on it."""
    hooks = [(event, hook) for event, each in declared.items() for hook in each]

    async def act(args: str, inbound: Inbound) -> str:
        if not args:
            return _listed(hooks, consents)
        verb, _, which = args.lower().partition(" ")
        if verb not in ("allow", "revoke"):
            return f"/hooks takes allow or revoke and a number, not {verb}."
        if inbound.address.platform != _HERE:
            return "What may run on this machine is said in its own terminal."
        chosen = hooks if which.strip() == "all" else _numbered(hooks, which)
        if not chosen:
            return f"Which one? /hooks {verb} N, with a number from 1 to {len(hooks)}, or all."
        for event, hook in chosen:
            if verb == "allow":
                consents.give(event, hook.command)
            else:
                consents.withdraw(hook.command, event)
        return _listed(hooks, consents)

    return act


def _numbered(hooks: list[tuple[str, ShellHook]], which: str) -> list[tuple[str, ShellHook]]:
    number = int(which) if which.strip().isascii() and which.strip().isdecimal() else 0
    return hooks[number - 1 : number] if number else []


def _listed(hooks: list[tuple[str, ShellHook]], consents: Consents) -> str:
    if not hooks:
        return "No shell hooks are declared; [hooks] in config.toml is where they stand."
    lines = []
    for number, (event, hook) in enumerate(hooks, 1):
        state = "allowed" if consents.given(event, hook.command) else "not allowed"
        tools = f" for {hook.matcher}" if hook.matcher else ""
        lines.append(f"{number}  {state}  {event}{tools}: {hook.command}")
    return "\n".join(lines)
