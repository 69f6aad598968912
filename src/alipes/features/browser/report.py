"""Results of browser tools: which page is open, what happened besides, and the accessibility tree."""

from typing import TYPE_CHECKING

from alipes.features.browser.guard import GuardReport
from alipes.features.browser.session import BrowserSession
from alipes.features.browser.snapshot import MAX_CHARS, MAX_TEXT_CHARS, compact_snapshot, cut_snapshot
from alipes.kernel.errors import ToolError
from alipes.kernel.formatting import format_count

if TYPE_CHECKING:
    from playwright.async_api import Page

MAX_TITLE_CHARS = 120
MAX_URL_CHARS = 500
MAX_TRIES = 4
MAX_BLOCKED_HOSTS = 3
PROXY_STATUSES = (403, 502)
"""With which the egress proxy answers what it refuses."""
_PASSWORDS = "elements => elements.map(element => String(element.value))"


async def describe_page(
    session: BrowserSession, *, with_snapshot: bool, ref: str = "", first: int = 1, done: str = ""
) -> str:
    """The current page. Lines of the program come first and in brackets; those of the page begin with `-`.

    Raises `ToolError` if a document was refused.
    """
    report, refusals = session.guard.take_report(), session.take_refusals()
    refused = [*report.documents, *(each for each in refusals if _is_about_page(each, session))]
    if refused:
        raise ToolError(" ".join((f"{done} was not possible." if done else "", *refused)).strip())
    notes = (*session.tabs.take_notes(), *describe_blocked(report), *refusals[:MAX_BLOCKED_HOSTS])
    lines = [f"[{note}]" for note in notes]
    if not session.has_page:
        return "\n".join(("[the tab was closed; no page is open]", *lines))
    lines.insert(0, await _describe_address(session.page))
    if len(session.tabs.pages) > 1:
        lines.append(await _list_tabs(session))
    if with_snapshot:
        lines.append(await take_snapshot(session, ref, first))
    elif done:
        lines.append(f"[{done}: done. The page may have changed; browser_snapshot shows it]")
    session.record_hosts()
    return "\n".join(lines)


def _is_about_page(refusal: str, session: BrowserSession) -> bool:
    """True if the egress proxy refused the current page itself: Chromium shows its answer as if it was the page."""
    if not session.has_page or session.tabs.last_status not in PROXY_STATUSES:
        return False
    session.record_hosts()
    return any(refusal.startswith((f"{host}:", f"{host} ")) for host in session.hosts_read[:1])


async def take_snapshot(session: BrowserSession, ref: str = "", first: int = 1) -> str:
    """The accessibility tree of the page, or of one element, from line `first` on."""
    from playwright.async_api import Error  # noqa: PLC0415

    for left in range(MAX_TRIES, 0, -1):
        try:
            source = await session.element(ref) if ref else session.page
            yaml, passwords = await source.aria_snapshot(mode="ai"), await _find_passwords(session.page)
            break
        except Error as error:
            if left == 1 or not any(each in error.message for each in ("context was destroyed", "Frame was detached")):
                raise
            await session.wait_for_load()  # the page has just changed
    lines = compact_snapshot(yaml, passwords, MAX_CHARS if ref else MAX_TEXT_CHARS)
    if not lines:
        return "[the page is empty]"
    if first > len(lines):
        raise ToolError(f"the snapshot has only {len(lines)} lines")
    part = cut_snapshot(lines, max(first, 1))
    if not part.next_line:
        return part.text
    shown = f"lines {max(first, 1)}-{part.next_line - 1} of {part.lines}"
    return f"{part.text}\n[{shown}; more with line={part.next_line}, or use ref to see one part]"


def describe_blocked(report: GuardReport) -> tuple[str, ...]:
    """How many requests to other sites were blocked; such a page may look incomplete."""
    if not report.blocked:
        return ()
    total = sum(count for _, count in report.blocked)
    hosts = [host for host, _ in report.blocked[:MAX_BLOCKED_HOSTS]]
    more = len(report.blocked) - len(hosts)
    named = ", ".join(hosts) + (f" and {format_count(more, 'other host')}" if more else "")
    return (f"blocked {format_count(total, 'request')} to {named}; egress.allow or browser.subresources allow them",)


async def _describe_address(page: "Page") -> str:
    title = " ".join((await page.title()).split())[:MAX_TITLE_CHARS].replace("[", "(")
    return f"Page: {page.url[:MAX_URL_CHARS]}" + (f" “{title}”" if title else "")


async def _list_tabs(session: BrowserSession) -> str:
    shown = [
        f"{number}{' (current)' if page is session.page else ''}: {page.url[:80]}"
        for number, page in enumerate(session.tabs.pages, 1)
    ]
    return f"[tabs: {'; '.join(shown)}]"


async def _find_passwords(page: "Page") -> list[str]:
    """Values of password fields, which snapshots must not show."""
    found: list[str] = []
    for frame in page.frames:
        if not frame.is_detached():
            found += await frame.locator("input[type=password]").evaluate_all(_PASSWORDS)
    return found
