"""Commands about plugins: which there are, and exchanging them. What they are made of is not known here."""

from alipes.config.near import did_you_mean
from alipes.hooks.facts import PluginFacts
from alipes.hooks.loader import Plugins
from alipes.kernel.wording import aligned, brief, count
from alipes.sessions.commands.context import Context, Reply

ACTIONS = ("list", "reload", "enable", "disable")


async def plugins(context: Context, args: str) -> Reply:
    loaded, (action, *names) = context.plugins, args.split() or ["list"]
    if loaded is None:
        return Reply("Nothing is known of plugins here.", trouble=True)
    if action not in ACTIONS:
        meant = did_you_mean(action, ACTIONS)
        return Reply(
            f"/plugins takes {', '.join(ACTIONS[1:])} and a name, not {brief(action, 20)}.{meant}",
            trouble=True,
        )
    if action == "list":
        return Reply(_listed(await loaded.listing()))
    if len(names) != 1:
        return Reply(f"Which one? /plugins {action} NAME.", trouble=True)
    act = {"reload": loaded.reload, "enable": loaded.enable, "disable": loaded.disable}[action]
    return Reply(await act(names[0]))


def plugin_words(loaded: Plugins) -> list[str]:
    """What may follow `/plugins`."""
    known = loaded.facts()
    return [f"{action} {each.name}" for action in ("reload", "disable") for each in known] + ["enable "]


def _listed(facts: tuple[PluginFacts, ...]) -> str:
    if not facts:
        return "There is no plugin. `alipes plugins install` brings one, `alipes plugins new` begins one."
    return aligned([(f"{each.name} {each.version}".rstrip(), _state(each)) for each in facts])


def _state(each: PluginFacts) -> str:
    if each.state != "on":
        return f"{each.state}: {each.why}" if each.why else each.state
    has = {"hook": each.hooks, "tool": each.tools, "command": each.commands, "skill": each.skills}
    what = [count(len(names), noun) for noun, names in has.items() if names] + list(each.provides)
    strikes = f"; failed {count(each.strikes, 'time')}" if each.strikes else ""
    return f"on: {', '.join(what) or 'at work in the background'}{strikes}"
