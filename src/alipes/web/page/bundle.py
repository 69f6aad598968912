"""The modules of the first screen as one script: one answer instead of thirty, and a fifth fewer bytes.

Each module becomes a function that is called once, in the order of their imports. Modules that are loaded later find
the same values by small modules at the old addresses.
"""

import json
import posixpath
import re
from collections.abc import Iterator, Mapping

_IMPORT = re.compile(r'^import\s+(?:([^"]+?)\s+from\s+)?"(\.[^"]+)";\n', re.MULTILINE)
_EXPORT = re.compile(r"^export (default )?((?:async )?function|const|class) (\w+)", re.MULTILINE)
_DEFAULT = re.compile(r"^export default (\w+);\n", re.MULTILINE)
_PASSED_ON = re.compile(r'^export (\{[^}]+\} from "\.[^"]+";\n)', re.MULTILINE)
_LAZY = re.compile(r"\bimport\(")
_HEAD = """\
const $modules = {};
const $base = new URL("./", import.meta.url).href;
const $load = (from, path) => {
const { href } = new URL(path, $base + from);
const found = $modules[href.slice($base.length)];
return found ? Promise.resolve(found) : import(href);
};
"""


def bundle_modules(modules: Mapping[str, str]) -> str:
    """One module with all of `modules`, which are sources by path; what they import besides stays outside."""
    outside: dict[str, str] = {}
    parts = [_wrap(name, modules[name], modules, outside) for name in _sort(modules)]
    imports = "".join(f'import * as {alias} from "./{path}";\n' for path, alias in outside.items())
    return f"{imports}{_HEAD}{''.join(parts)}export default $modules;\n"


def make_stub(name: str, source: str, bundle: str) -> str:
    """A module with the values of the module `name` of a bundle."""
    exported = _list_exports(source)
    names = [each for each in exported if each != "default"]
    place = posixpath.relpath(bundle, posixpath.dirname(name) or ".")
    text = f'import $modules from "{place if place.startswith(".") else f"./{place}"}";\n'
    text += f"export const {{ {', '.join(names)} }} = $modules[{json.dumps(name)}];\n" if names else ""
    return f"{text}export default $modules[{json.dumps(name)}].default;\n" if "default" in exported else text


def _list_exports(source: str) -> dict[str, str]:
    """The names that a module exports, and what they are in it."""
    exported = {"default" if found[1] else found[3]: found[3] for found in _EXPORT.finditer(source)}
    for found in _DEFAULT.finditer(source):
        exported["default"] = found[1]
    for found in _PASSED_ON.finditer(source):
        names = found[1].partition("}")[0].strip("{ ").split(",")
        exported |= {name.strip(): name.strip() for name in names}
    return exported


def _sort(modules: Mapping[str, str]) -> Iterator[str]:
    """Each after what it imports."""
    done = set[str]()

    def visit(name: str) -> Iterator[str]:
        if name in done or name not in modules:
            return
        done.add(name)
        for found in _IMPORT.finditer(_PASSED_ON.sub(r"import \1", modules[name])):
            yield from visit(_resolve(name, found[2]))
        yield name

    for each in modules:
        yield from visit(each)


def _resolve(name: str, path: str) -> str:
    return posixpath.normpath(posixpath.join(posixpath.dirname(name), path))


def _wrap(name: str, source: str, modules: Mapping[str, str], outside: dict[str, str]) -> str:
    exported = _list_exports(source)

    def take(found: re.Match[str]) -> str:
        path = _resolve(name, found[2])
        place = f"$modules[{json.dumps(path)}]"
        if path not in modules:
            place = outside.setdefault(path, f"$outside{len(outside)}")
        return _declare(found[1] or "", place)

    body = _IMPORT.sub(take, _PASSED_ON.sub(r"import \1", source))
    body = _EXPORT.sub(r"\2 \3", _DEFAULT.sub("", body))
    body = _LAZY.sub(f"$load({json.dumps(name)}, ", body)
    values = ", ".join(f"{key}: {value}" if key != value else key for key, value in exported.items())
    return f"$modules[{json.dumps(name)}] = (() => {{\n{body}return {{ {values} }};\n}})();\n"


def _declare(clause: str, place: str) -> str:
    """The names that an import gives, as constants."""
    default, _, named = clause.partition("{")
    names = [each.strip().replace(" as ", ": ") for each in named.rstrip("} \n").split(",") if each.strip()]
    if default.strip(" ,\n"):
        names.append(f"default: {default.strip(' ,')}")
    return f"const {{ {', '.join(names)} }} = {place};\n" if names else ""
