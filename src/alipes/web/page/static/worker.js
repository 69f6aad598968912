// Registers the service worker that caches the shell of the page, so that it can be installed.

export function startWorker() {
  if (!("serviceWorker" in navigator) || !isSecureContext) return;
  try {
    navigator.serviceWorker.register("sw.js").catch(() => {});
  } catch {
    // Trusted Types refuse the address where no policy is allowed
  }
}
