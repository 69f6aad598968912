// A part of the chat that is loaded when it is first shown.
import { html, useEffect, useState } from "../vendor/preact.js";

/** @param {{path: string, [rest: string]: any}} props `path`: a module whose default export is a component. */
export function Lazy({ path, ...rest }) {
  const [Part, setPart] = useState(/** @type {any} */ (null));
  useEffect(() => {
    import(path).then((module) => setPart(() => module.default));
  }, [path]);
  return Part ? html`<${Part} ...${rest} />` : null;
}
