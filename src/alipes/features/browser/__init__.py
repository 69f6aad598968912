"""Browser tools: Playwright on an installed Chromium."""
