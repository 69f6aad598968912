"""Fixed, true answers of the demo model, which would otherwise invent what it can do or has done."""

import re

from alipes.runtime.program_name import program_name

ABOUT = """\
I am the demo model of alipes. I am tiny, and I run on this computer without a key or network. I can chat a little, \
but my answers are often wrong, and I cannot read files, run commands or search the web.

With a real model, alipes can:

- read, search and edit files, and run commands. It asks before anything dangerous
- look at pictures, run Python, and hand work to subagents
- answer in Telegram, Discord, Slack, Matrix, email and IRC, and over HTTP

Type `/setup` to connect one. It takes a minute. In a shell, run `alipes setup`.
"""
CANNOT_ACT = """\
I did not do that. I am the demo model of alipes, and I cannot read files, run commands or use the network.

Type `/setup` to connect a real model, then ask again. In a shell, run `alipes setup`.
"""
DISCLAIMER = "\n\n(This is the demo model. It did not read, change or run anything.)"
MAX_TASK = 300
"""Longer messages are texts to chat about."""

_YOU = r"(?:you|u|alipes|this|it|this (?:thing|tool|program|agent|app|model))"
_QUESTIONS = (
    rf"what (?:all )?(?:can|could|will|would) {_YOU} (?:do|help)(?: .*)?",
    rf"what (?:do|does) {_YOU} do(?: .*)?",
    rf"what (?:else )?(?:are|is) {_YOU}(?: (?:for|about|good (?:at|for)|capable of|able to do|exactly))?",
    rf"who (?:are|is|made) {_YOU}",
    rf"how (?:can|could|do|does|will) {_YOU} (?:help|work|assist)(?: .*)?",
    rf"how (?:can|do|should) i (?:use|start|begin|work)(?: with)?(?: {_YOU})?",
    rf"(?:what are|tell me|show me|list|describe) (?:about )?(?:your|the|its|{_YOU}) "
    r"(?:capabilities|features|skills|abilities|functions|tools|commands)",
    rf"tell me (?:more )?about (?:yourself|{_YOU})",
    r"introduce yourself",
    rf"(?:can|could|are|will) {_YOU} (?:able to )?(?:really )?(?:help|do (?:something|anything|things|work))(?: me)?",
    r"what (?:can|should|could) i (?:do|ask|try|type|say)(?: .*)?",
    rf"what model (?:are|is) {_YOU}(?: .*)?|(?:which|what) (?:llm|ai|model)(?: .*)?",
    r"help|help me|help please|capabilities|features",
    r"was kannst du(?: .*)?|wer bist du|que peux[- ]tu faire(?: .*)?|qui es[- ]tu|qu[eé] puedes hacer(?: .*)?",
    r"qui[eé]n eres|cosa (?:puoi|sai) fare(?: .*)?|chi sei|o que voc[eê] pode fazer(?: .*)?|quem [eé] voc[eê]",
)
_ABOUT = "|".join(f"(?:{one})" for one in _QUESTIONS)
# Patterns are compiled on first use: most processes do not use the demo model.
_GREETING = r"(?:(?:hi|hello|hey|ok|okay|so|well|and|but|please|alipes)[ ,.!]+)+"
_POLITE = r"(?:(?:can|could|would|will) you |i (?:want|need) you to |please |let'?s |now |then |go and )+"
_ACTION = (
    r"(?:list|show|read|open|cat|print|display|find|search|grep|look (?:at|for|into|up|in)|check|count|inspect|explore|"
    r"analy[sz]e|review|run|execute|start|stop|kill|install|uninstall|build|compile|test|deploy|commit|push|pull|"
    r"clone|merge|create|make|write|save|edit|change|modify|update|fix|debug|refactor|rename|move|copy|delete|remove|"
    r"add|download|upload|fetch|browse|send|mail|email|post|schedule|remind|set up|configure|summari[sz]e|explain|"
    r"tell me)\b"
)
_OBJECT = (
    r"\b(?:files?|folders?|director(?:y|ies)|repo(?:sitory)?|project|code ?base|tests?|bugs?|branch(?:es)?|commits?|"
    r"diff|command|script|process(?:es)?|package|server|internet|web(?:site|page)?|url|online|emails?|mail|message to|"
    r"reminder|calendar|readme|logs?|database|screenshot|this code|my code|the code|disk|memory usage|weather|news|"
    r"git|ls|pwd|npm|pip|docker|make)\b"
    r"|@\S|https?://|(?:^|\s)\.{0,2}/\w"
    r"|\b\w+\.(?:py|js|ts|md|txt|json|toml|ya?ml|html|css|sh|c|rs|go)\b"
)
_HERE = (
    r"what(?:'s| is| are|s)? (?:the )?(?:\w+ )?(?:in|inside|files)(?: .*)?(?:this|the|my|current) "
    r"(?:folder|directory|project|repo|file).*|"
    r"(?:what|which) files .*|where am i|what (?:time|day|date) is it.*|what(?:'s| is) the (?:time|date|weather).*"
)
_CLAIM = (
    r"\bI(?:'ve| have| just| already)*\s+(?:also\s+)?(?:created|deleted|removed|written|wrote|saved|ran|run|executed|"
    r"listed|checked|searched|opened|sent|installed|updated|fixed|added|moved|renamed|copied|downloaded|found|looked|"
    r"read|changed|committed|pushed|tested)\b"
    r"|\bhere (?:is|are) (?:the|a|your)(?: \w+)? (?:files?|list|contents?|output|results?|folders?)\b"
    r"|\bI(?:'ll| will| am going to) (?:now )?(?:create|delete|remove|write|save|run|execute|list|check|search|open|"
    r"send)\b"
)


def fixed_answer(text: str, *, may_act: bool = False) -> str:
    """The answer to a question about the program or to a task; empty if the model may answer.

    `may_act`: the model was given tools for this message, so a task is not refused.
    """
    return _choose_answer(text, may_act=may_act).replace("`alipes setup`", f"`{program_name()} setup`")


def _choose_answer(text: str, *, may_act: bool) -> str:
    asked = " ".join(text.split()).rstrip(" .!,;:?")
    if not asked:
        return ABOUT if "?" in text else ""
    if found := re.match(_GREETING, asked + " ", re.I):
        asked = asked[found.end() :]
    if re.fullmatch(_ABOUT, asked, re.I):
        return ABOUT
    if may_act or len(asked) > MAX_TASK:
        return ""
    polite = re.match(_POLITE, asked, re.I)
    task = asked[polite.end() :] if polite else asked
    acts = re.match(_ACTION, task, re.I) and re.search(_OBJECT, task, re.I)
    return CANNOT_ACT if acts or re.fullmatch(_HERE, asked, re.I) else ""


def claims_action(answer: str) -> bool:
    """True if an answer says that something was done, which the demo model cannot do."""
    return re.search(_CLAIM, answer, re.I) is not None
