// The screen of a browser that is not logged in, and what a login link does.
import { html, useState } from "./vendor/preact.js";
import { ApiError, loggedIn, login, loginProblem } from "./api.js";
import { go } from "./router.js";
import { save } from "./storage.js";
import { Button } from "./ui.js";

export default function Login() {
  const [busy, setBusy] = useState(false);
  /** @param {SubmitEvent} event */
  const submit = async (event) => {
    event.preventDefault();
    const form = /** @type {HTMLFormElement} */ (event.currentTarget);
    const typed = String(new FormData(form).get("code") || "").trim();
    setBusy(true);
    await redeem(typed.split("#login=").pop() || "");
    setBusy(false);
  };
  return html`<main class="login" id="main">
    <h1>alipes</h1>
    <p>This browser is not logged in.</p>
    ${loginProblem.value && html`<p class="problem" role="alert">${loginProblem.value}</p>`}
    <p>On the machine where alipes runs:</p>
    <pre class="command"><code>alipes page</code></pre>
    <p class="muted">It prints a link that works once, for five minutes. Open it here, or paste it:</p>
    <form onSubmit=${submit}>
      <label class="hidden" for="code">Login link or code</label>
      <input id="code" name="code" autocomplete="off" spellcheck=${false} placeholder="Login link or code" required />
      <${Button} kind="primary" type="submit" busy=${busy}>Log in<//>
    </form>
  </main>`;
}

/** @param {string} code */
export async function redeem(code) {
  try {
    await login(code);
    if ("serviceWorker" in navigator && isSecureContext) location.replace("install#/");
    else go("", { replace: true });
  } catch (error) {
    if (!(error instanceof ApiError)) throw error;
    loginProblem.value = error.message;
    save("secret", "");
    loggedIn.value = false;
  }
}
