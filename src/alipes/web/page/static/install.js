// Registers the service worker, which the page itself may not do under Trusted Types, and returns to the page.

const back = () => location.replace(`./${location.hash}`);

if ("serviceWorker" in navigator) {
  navigator.serviceWorker.register("sw.js", { scope: "./" }).then(back, back);
} else {
  back();
}
