"""Settings of the browser."""

from typing import Annotated, Literal

from msgspec import Struct

from alipes.config.value_types import PROFILE, seconds, whole

Subresources = Literal["site", "public"]
DialogAnswer = Literal["dismiss", "accept"]


class BrowserConfig(Struct, frozen=True):
    enabled: Annotated[
        bool,
        "Whether the model gets the browser tools. They need `alipes install browser` and an installed Chromium or "
        "Chrome. Their descriptions take about 900 tokens of every request.",
    ] = False
    executable: Annotated[str, "Path of Chromium or Chrome. Empty: the first one found on PATH."] = ""
    sandbox: Annotated[
        Literal["auto", "on", "off"],
        "Chromium's own sandbox around web pages. `auto`: on, except for root, for whom Chromium has none.",
    ] = "auto"
    profile: Annotated[
        str,
        PROFILE,
        "Keep cookies and local storage under this name, so that logins last. Empty: each conversation starts without "
        "any, and nothing is kept.",
    ] = ""
    subresources: Annotated[
        Subresources,
        "Which other hosts a page may load from without a question. `site`: hosts that are allowed, and subdomains of "
        "the page's host. `public`: every public host that is not denied.",
    ] = "site"
    dialogs: Annotated[
        DialogAnswer, "How questions of a page (confirm, prompt) are answered, unless the model says otherwise."
    ] = "dismiss"
    timeout: Annotated[float, seconds(1, 600), "Seconds that one act, such as loading a page, may take."] = 30.0
    idle: Annotated[
        float, seconds(1, 86_400), "Seconds without use after which the pages of a conversation are closed."
    ] = 900.0
    download_mb: Annotated[int, whole(1, 100_000), "Largest file that is downloaded, in MB."] = 100
