// Service worker: keeps the files of the page, so that it opens at once and while the server is away. No data.
const worker = /** @type {ServiceWorkerGlobalScope} */ (/** @type {unknown} */ (self));
const CACHE = "alipes-shell";

worker.addEventListener("install", () => worker.skipWaiting());
worker.addEventListener("activate", (event) => event.waitUntil(worker.clients.claim()));
worker.addEventListener("fetch", (event) => {
  const url = new URL(event.request.url);
  const folder = new URL("./", worker.location.href).pathname;
  if (event.request.method !== "GET" || url.origin !== worker.location.origin) return;
  const path = url.pathname.slice(folder.length);
  if (path === "") event.respondWith(fetchPage(event.request));
  else if (path.startsWith("static/")) event.respondWith(fetchFile(event.request));
});

worker.addEventListener("notificationclick", (event) => {
  event.notification.close();
  event.waitUntil(openAt(String(event.notification.data ?? "")));
});

/** Show the page at the place that a notification names. @param {string} path */
async function openAt(path) {
  const address = new URL(`./#/${path}`, worker.location.href).href;
  const [open] = await worker.clients.matchAll({ type: "window" });
  if (!open) return worker.clients.openWindow(address);
  await open.focus();
  return open.navigate(address);
}

/** The page from the server; the stored one while the server is away. @param {Request} request */
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

/** A file whose address changes with its content; those of older versions are removed. @param {Request} request */
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

/** @param {Cache} cache @param {string} url */
async function removeOld(cache, url) {
  const version = url.match(/\/static\/[^/]+\//)?.[0];
  if (!version) return;
  for (const request of await cache.keys()) {
    if (request.url.includes("/static/") && !request.url.includes(version)) await cache.delete(request);
  }
}
