"""The table of keys in docs is that of the code.

`python -m tests.architecture.test_docs_keys` renews it.
"""

import re
from pathlib import Path

from alipes.config.keys import KeysConfig, key_table
from alipes.kernel.formatting import closest_matches

PAGE = Path(__file__).parents[2] / "docs" / "keys.md"
MARKED = re.compile(r"(<!-- begin keys -->\n).*?(<!-- end keys -->)", re.DOTALL)


def renewed(page: str) -> str:
    rows = ["| keys | action |", "|---|---|"]
    rows += [f"| {keys} | {text} |" for keys, text in key_table(KeysConfig())]
    return MARKED.sub(lambda found: found[1] + "\n".join(rows) + "\n" + found[2], page)


def test_the_table_of_keys_is_that_of_the_code():
    page = PAGE.read_text()
    assert page == renewed(page), "run: python -m tests.architecture.test_docs_keys"


def test_the_example_names_real_actions():
    example = re.search(r"```toml\n\[keys\]\n(.*?)```", PAGE.read_text(), re.DOTALL)
    names = re.findall(r"^(\w+) =", example[1], re.MULTILINE)
    unknown = {name: closest_matches(name, KeysConfig.__struct_fields__) for name in names}
    assert not {name for name in unknown if name not in KeysConfig.__struct_fields__}, unknown


if __name__ == "__main__":
    PAGE.write_text(renewed(PAGE.read_text()))
