"""A SKILL.md: the fields of the specification, and files of other programs that depart from it."""

import pytest

from alipes.features.skills.skill import find_name_problem, parse_skill, to_name

FULL = """\
---
name: pdf-tools
description: >-
  Fill forms in PDF files.
  Use when the user mentions a PDF.
license: Apache-2.0
compatibility: Requires Python 3.11+
metadata:
  author: example-org
  version: "1.0"
allowed-tools: Bash(python3:*) Bash(git add:*) Read
---
# PDF tools

Run scripts/fill.py.
"""


def test_all_fields_of_the_specification_are_read():
    parsed = parse_skill(FULL, "/x/pdf-tools")
    skill = parsed.skill
    assert (skill.name, skill.license, skill.compatibility) == ("pdf-tools", "Apache-2.0", "Requires Python 3.11+")
    assert skill.description == "Fill forms in PDF files. Use when the user mentions a PDF."
    assert skill.metadata == {"author": "example-org", "version": "1.0"}
    assert skill.allowed_tools == ("Bash(python3:*)", "Bash(git add:*)", "Read")
    assert parsed.body.startswith("# PDF tools") and skill.remarks == ()


@pytest.mark.parametrize(
    "tools", ["Read, Bash(git add:*)", "[Read, Bash(git add:*)]", "\n  - Read\n  - Bash(git add:*)"]
)
def test_allowed_tools_may_be_a_text_or_a_list(tools):
    text = f"---\nname: a\ndescription: b\nallowed-tools: {tools}\n---\n"
    assert parse_skill(text, "a").skill.allowed_tools == ("Read", "Bash(git add:*)")


def test_a_name_in_another_form_is_made_plain_and_remarked_on():
    skill = parse_skill("---\nname: PDF Tools\ndescription: b\n---\n", "/x/pdf").skill
    assert skill.name == "pdf-tools" and "lower-case letters" in skill.remarks[0]


def test_a_name_that_is_not_the_folders_is_remarked_on():
    assert "not the name of its folder" in parse_skill("---\nname: a\ndescription: b\n---\n", "/x/b").skill.remarks[0]


def test_a_missing_name_is_that_of_the_folder():
    assert parse_skill("---\ndescription: b\n---\n", "/x/My_Skill").skill.name == "my-skill"


def test_a_missing_description_is_the_first_line():
    skill = parse_skill("---\nname: a\n---\n\n# Makes tea\n", "/x/a").skill
    assert skill.description == "Makes tea" and "no description" in skill.remarks[0]


def test_fields_of_other_programs_are_kept_as_metadata():
    skill = parse_skill("---\nname: a\ndescription: b\nversion: 2\nhermes:\n  tags: [x, y]\n---\n", "/x/a").skill
    assert skill.metadata == {"version": "2", "hermes.tags": "x, y"}


def test_a_skill_says_whether_the_model_and_the_person_may_choose_it():
    text = "---\nname: a\ndescription: b\ndisable-model-invocation: true\nuser-invocable: false\n---\n"
    skill = parse_skill(text, "/x/a").skill
    assert (skill.for_model, skill.for_person) == (False, False)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "is empty"),
        ("# Only text", "no front matter"),
        ("---\nname: a\n", "has no end"),
        ("---\n- a\n---\n", "cannot be read: line 2"),
        ("---\nname: a\n---\n", "no description"),
        ("---\ndescription: b\n---\n", "no name"),
    ],
)
def test_what_cannot_be_used_is_refused_with_a_sentence(text, says):
    with pytest.raises(ValueError, match=says):
        parse_skill(text, "")


@pytest.mark.parametrize("name", ["", "A", "a b", "-a", "a-", "a--b", "a_b", "a" * 65, "../a", "é"])
def test_a_new_skill_needs_a_name_of_the_specification(name):
    assert "is not a valid name" in find_name_problem(name)


def test_any_text_becomes_a_name():
    assert to_name("Émile's  Big_Skill!") == "emile-s-big-skill"
