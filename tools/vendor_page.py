"""Rebuild the modules of other projects that the page uses (src/alipes/web/page/static/vendor). Needs npm.

    python tools/vendor_page.py           the versions of vendor.toml again; fails if a file differs
    python tools/vendor_page.py --newest  the newest versions, and a new vendor.toml

Not part of the installation: the files are in the repository and in the wheel.
"""

import hashlib
import json
import re
import shutil
import subprocess
import sys
import tempfile
import tomllib
from pathlib import Path

FOLDER = Path(__file__).parents[1] / "src" / "alipes" / "web" / "page" / "static" / "vendor"
TABLE = FOLDER / "vendor.toml"
BUILDER = "esbuild"
PACKAGES = {
    "preact": "preact.js",
    "@preact/signals": "preact.js",
    "@preact/signals-core": "preact.js",
    "htm": "preact.js",
    "markdown-it": "markdown-it.js",
    "character-entities": "entities.js",
    "highlight.js": "highlight.js",
    "temml": "temml.js",
    "uplot": "uplot.js",
    "@mermaid-js/tiny": "mermaid.js",
}
"""Each package, and the module that it is built into."""
ENTRIES = {
    "preact.js": """\
import { h } from "preact"; import htm from "htm";
export { h, render, Fragment, Component } from "preact";
export { useState, useEffect, useLayoutEffect, useRef, useMemo, useCallback, useId } from "preact/hooks";
export { signal, computed, effect, batch, untracked, useSignal, useComputed, useSignalEffect } from "@preact/signals";
export const html = htm.bind(h);
""",
    "markdown-it.js": """\
export { default as ParserBlock } from "markdown-it/lib/parser_block.mjs";
export { default as ParserInline } from "markdown-it/lib/parser_inline.mjs";
export * as helpers from "markdown-it/lib/helpers/index.mjs";
export { unescapeAll } from "markdown-it/lib/common/utils.mjs";
export { default as Token } from "markdown-it/lib/token.mjs";
export { addEntities } from "entities";
""",
    "entities.js": 'export { characterEntities } from "character-entities";\n',
    "highlight.js": """\
import hljs from "highlight.js/lib/common";
class Nodes {
  constructor() { this.root = document.createDocumentFragment(); this.open = [this.root]; }
  addText(text) { if (text) this.open.at(-1).append(text); }
  startScope(scope) {
    const span = document.createElement("span");
    span.className = "hl-" + scope.split(".")[0];
    this.open.at(-1).append(span);
    this.open.push(span);
  }
  endScope() { this.open.pop(); }
  openNode(scope) { this.startScope(scope); }
  closeNode() { this.endScope(); }
  __addSublanguage(emitter) { this.open.at(-1).append(emitter.root); }
  finalize() {}
  toHTML() { return ""; }
}
hljs.configure({ __emitter: Nodes });
export const colour = (code, language) =>
  hljs.getLanguage(language) ? hljs.highlight(code, { language, ignoreIllegals: true })._emitter.root : null;
""",
    "temml.js": 'export { default } from "temml";\n',
    "uplot.js": 'export { default } from "uplot";\n',
}
COPIES = {
    "mermaid.js": ("@mermaid-js/tiny", "dist/mermaid.tiny.js"),
    "uplot.css": ("uplot", "dist/uPlot.min.css"),
    "uplot.d.ts": ("uplot", "dist/uPlot.d.ts"),
}
"""Files that are copied: package and path in it."""
STANDINS = {
    "entities": """\
const table = { amp: "&", lt: "<", gt: ">", quot: '"', nbsp: "\\u00a0", copy: "\\u00a9" };
export const addEntities = (more) => Object.assign(table, more);
export const decodeHTML = (text) => (Object.hasOwn(table, text.slice(1, -1)) ? table[text.slice(1, -1)] : text);
export const decodeHTMLStrict = decodeHTML;
""",
    "uc.micro": "export const P = /\\p{P}/u, S = /\\p{S}/u;\n",
    "mdurl": "export {};\n",
}
"""Modules that take the place of packages: the page loads the names of entities when a text has one, and the browser
knows classes of characters and addresses."""
EMPTY = [*("rules_block/html_block", "rules_inline/html_inline", "rules_inline/linkify", "rules_inline/strikethrough")]
"""Rules of markdown-it that the page leaves out or has itself."""
VERSIONS = {"markdown-it": "14"}
"""The newest of these: the next one is a single file, of which no part can be taken."""
HEAD = """\
# Modules of other projects that the page uses, as `python tools/vendor_page.py --newest` built them.
# A test compares the files with their hashes. The licence texts are in licences/.
"""


def main() -> int:
    newest = "--newest" in sys.argv[1:]
    versions = {} if newest else _read_versions()
    with tempfile.TemporaryDirectory() as directory:
        work = Path(directory)
        _install(work, versions)
        built = _build(work)
        table = _describe(work, built)
    if not newest and table != TABLE.read_text():
        print(f"{TABLE} differs from what npm and {BUILDER} give now:\n{table}", file=sys.stderr)
        return 1
    for name, content in built.items():
        path = FOLDER / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
    TABLE.write_text(table)
    return 0


def _read_versions() -> dict[str, str]:
    table = tomllib.loads(TABLE.read_text())
    return {BUILDER: table[BUILDER]} | {each["name"]: each["version"] for each in table["packages"]}


def _install(work: Path, versions: dict[str, str]) -> None:
    names = [f"{name}@{versions.get(name, VERSIONS.get(name, 'latest'))}" for name in (*PACKAGES, BUILDER)]
    (work / "package.json").write_text("{}")
    command = ["npm", "install", "--no-audit", "--no-fund", "--ignore-scripts", "--loglevel=error", *names]
    subprocess.run(command, cwd=work, check=True)


def _build(work: Path) -> dict[str, bytes]:
    """The files by name, without the table."""
    built = {}
    aliases = []
    for package, text in STANDINS.items():
        (work / f"standin-{package}.js").write_text(text)
        aliases.append(f"--alias:{package}=./standin-{package}.js")
    for rule in EMPTY:
        code = "const rule = () => false; export default Object.assign(rule, { tokenize: rule, postProcess: rule });\n"
        (work / "node_modules" / "markdown-it" / "lib" / f"{rule}.mjs").write_text(code)
    for name, entry in ENTRIES.items():
        (work / name).write_text(entry)
        packages = [package for package, module in PACKAGES.items() if module == name]
        notice = ", ".join(f"{package} {_manifest(work, package)['version']}" for package in packages)
        command = [
            "node_modules/.bin/esbuild",
            name,
            "--bundle",
            "--minify",
            "--format=esm",
            "--target=es2022",
            *aliases,
        ]
        banner = f"--banner:js=/* {notice}; licences: vendor.toml */"
        built[name] = subprocess.run([*command, banner], cwd=work, check=True, capture_output=True).stdout
    for name, (package, path) in COPIES.items():
        text = (work / "node_modules" / package / path).read_text()
        # The map is not here, and the type is that of a module with a default export.
        text = re.sub(r"//# sourceMappingURL=.*\n?|export as namespace uPlot;\n?", "", text)
        text = text.replace("export = uPlot;", "export default uPlot;")
        notice = f"/* {package} {_manifest(work, package)['version']}; licences: vendor.toml */\n"
        built[name] = f"{notice if name.endswith('.js') else ''}{text}".encode()
    for package in PACKAGES:
        licence, *_ = (each for each in (work / "node_modules" / package).iterdir() if each.stem.lower() == "license")
        built[f"licences/{_plain(package)}.txt"] = licence.read_bytes()
    return built


def _describe(work: Path, built: dict[str, bytes]) -> str:
    lock = json.loads((work / "package-lock.json").read_text())["packages"]
    parts = [HEAD, f'{BUILDER} = "{_manifest(work, BUILDER)["version"]}"\n']
    for name, module in PACKAGES.items():
        about = _manifest(work, name)
        rows = {
            "name": name,
            "version": about["version"],
            "licence": about["license"],
            "licence_text": f"licences/{_plain(name)}.txt",
            "integrity": lock[f"node_modules/{name}"]["integrity"],
            "module": module,
        }
        parts.append("\n[[packages]]\n" + "".join(f'{key} = "{value}"\n' for key, value in rows.items()))
    parts.append("\n[sha256]\n")
    parts += [f'"{name}" = "{hashlib.sha256(content).hexdigest()}"\n' for name, content in sorted(built.items())]
    return "".join(parts)


def _manifest(work: Path, package: str) -> dict[str, str]:
    return json.loads((work / "node_modules" / package / "package.json").read_text())


def _plain(package: str) -> str:
    return package.removeprefix("@").replace("/", "-")


if __name__ == "__main__":
    if shutil.which("npm") is None:
        sys.exit("npm is missing: install nodejs and npm")
    sys.exit(main())
