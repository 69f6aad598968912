"""Steps that tests of the screens share: open a screen, and call the API as its browser does."""

from typing import Any

from playwright.async_api import Page, expect

_CALL = """async ([method, path, body]) => {
  const headers = { "x-alipes-page": localStorage.getItem("alipes.secret"), "content-type": "application/json" };
  const answer = await fetch(`v1/${path}`, { method, headers, body: body === null ? undefined : JSON.stringify(body) });
  const text = await answer.text();
  return [answer.status, text ? JSON.parse(text) : null];
}"""


async def show(page: Page, address: str, heading: str) -> None:
    """Open a screen and wait for its heading."""
    await page.evaluate("hash => { location.hash = hash; }", f"#/{address}")
    await expect(page.get_by_role("heading", level=1, name=heading, exact=True)).to_be_visible()


async def call(page: Page, method: str, path: str, body: Any = None) -> Any:
    """The JSON answer to a call of the API with this browser's login; it must succeed."""
    status, answer = await page.evaluate(_CALL, [method, path, body])
    assert status < 300, (status, answer)
    return answer


async def start_run(page: Page, text: str) -> dict[str, Any]:
    """Start a run in a conversation of its own."""
    run: dict[str, Any] = await call(page, "POST", "runs", {"input": text})
    return run
