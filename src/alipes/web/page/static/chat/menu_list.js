// A menu: opened at a button, used with the arrow keys, closed by Escape or by a click beside it.
import { html, useEffect, useLayoutEffect, useRef, useState } from "../vendor/preact.js";
import { Icon, attempt } from "../ui.js";

/** @typedef {{label: string, icon: string, act: () => unknown, danger?: boolean}} Entry */

/**
 * @param {{label: string, entries: (Entry | null | false)[], box: {current: HTMLElement | null}, onClose: () => void, place?: {x: number, y: number}}} props
 *   `box`: the button's place, which gets the focus back. `place`: where it opens on the screen; else below `box`.
 */
export function MenuList({ label, entries, box, onClose, place }) {
  const list = useRef(/** @type {HTMLElement | null} */ (null));
  const shown = entries.flatMap((each) => (each ? [each] : []));
  const items = () => [.../** @type {NodeListOf<HTMLElement>} */ (list.current?.querySelectorAll('[role="menuitem"]'))];
  const close = () => {
    onClose();
    /** @type {HTMLElement | null | undefined} */ (box.current?.matches("a, button") ? box.current : box.current?.querySelector("button"))?.focus();
  };
  useEffect(() => {
    items()[0]?.focus();
    /** @param {Event} event */
    const leave = (event) => {
      const target = /** @type {Node} */ (event.target);
      if (!box.current?.contains(target) && !list.current?.contains(target)) onClose();
    };
    addEventListener("pointerdown", leave);
    return () => removeEventListener("pointerdown", leave);
  }, []);
  /** @param {KeyboardEvent} event */
  const onKey = (event) => {
    const all = items();
    const at = all.indexOf(/** @type {HTMLElement} */ (document.activeElement));
    const next = { ArrowDown: at + 1, ArrowUp: at - 1 + all.length, Home: 0, End: all.length - 1 }[event.key];
    if (next !== undefined) all[next % all.length]?.focus();
    else if (event.key === "Escape") close();
    else if (event.key === "Tab") onClose();
    else return;
    if (event.key !== "Tab") event.preventDefault();
    event.stopPropagation();
  };
  const [at, setAt] = useState(place);
  useLayoutEffect(() => {
    const { offsetWidth: width = 0, offsetHeight: height = 0 } = list.current ?? {};
    if (place) setAt({ x: Math.max(8, Math.min(place.x, innerWidth - width - 8)), y: Math.max(8, Math.min(place.y, innerHeight - height - 8)) });
  }, []);
  return html`<div ref=${list} class=${`menu-list${place ? " placed" : ""}`} role="menu" aria-label=${label} onKeyDown=${onKey}
    style=${at ? { left: `${at.x}px`, top: `${at.y}px` } : undefined}>${shown.map((each) => html`
    <button key=${each.label} role="menuitem" tabindex="-1" class=${each.danger ? "danger" : ""}
      onClick=${() => { close(); attempt(each.act); }}><${Icon} name=${each.icon} size=${16} /> ${each.label}</button>`)}</div>`;
}

export default MenuList;
