// Service worker: keeps the files of the page, so that it opens at once and while the server is away. No data.
const CACHE = "alipes-shell";

self.addEventListener("install", () => self.skipWaiting());
self.addEventListener("activate", (event) => event.waitUntil(self.clients.claim()));
self.addEventListener("fetch", (event) => {
  const url = new URL(event.request.url);
  const folder = new URL("./", self.location.href).pathname;
  if (event.request.method !== "GET" || url.origin !== self.location.origin) return;
  const path = url.pathname.slice(folder.length);
  if (path === "") event.respondWith(fetchPage(event.request));
  else if (path.startsWith("static/")) event.respondWith(fetchFile(event.request));
});

/** The page from the server; the stored one while the server is away. */
async function fetchPage(request) {
  const cache = await caches.open(CACHE);
  try {
    const response = await fetch(request);
    if (response.ok) await cache.put("./", response.clone());
    return response;
  } catch {
    return (await cache.match("./")) ?? Response.error();
  }
}

/** A file whose address changes with its content; those of older versions are removed. */
async function fetchFile(request) {
  const cache = await caches.open(CACHE);
  const found = await cache.match(request);
  if (found) return found;
  const response = await fetch(request);
  if (response.ok) {
    await cache.put(request, response.clone());
    await removeOld(cache, request.url);
  }
  return response;
}

async function removeOld(cache, url) {
  const version = url.match(/\/static\/[^/]+\//)?.[0];
  if (!version) return;
  for (const request of await cache.keys()) {
    if (request.url.includes("/static/") && !request.url.includes(version)) await cache.delete(request);
  }
}
