// Service worker of the page: a placeholder without a cache.

self.addEventListener("activate", () => undefined);
