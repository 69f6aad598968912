"""The list of skills in the system prompt, and the text of one."""

import pytest

from alipes.features.skills.prompt import HEAD, allowed_tools, format_list, format_message
from alipes.features.skills.settings import SkillsConfig
from alipes.features.skills.skill import Skill
from alipes.features.skills.tool import SkillManage, SkillsList, SkillView


def many(count: int, words: int = 40) -> list[Skill]:
    about = "Use this when the user wants to work with documents and their many parts and forms"
    return [Skill(f"office-document-{number:02}", " ".join((about.split() * 4)[:words])) for number in range(count)]


def test_few_skills_are_listed_with_their_whole_descriptions():
    text = format_list([Skill("tea", "Makes tea."), Skill("mail", "Writes mail.")], 3200)
    assert text == HEAD + "- tea: Makes tea.\n- mail: Writes mail.\n"


@pytest.mark.parametrize("budget", [0, 50, 150, 400, 1000, 3200, 20_000])
@pytest.mark.parametrize("count", [0, 1, 7, 50, 300])
def test_the_list_keeps_to_its_budget(count, budget):
    assert len(format_list(many(count), budget).encode()) <= budget


def test_fifty_skills_are_all_named_within_the_usual_budget_and_cost_few_tokens():
    text = format_list(many(50), SkillsConfig().prompt_bytes)
    assert all(each.name in text for each in many(50))
    tools = sum(tool.spec.char_count for tool in (SkillsList, SkillView, SkillManage))
    assert (len(text) + tools) / 4 <= 1100  # about four characters are a token


def test_descriptions_are_shortened_and_not_left_out():
    lines = format_list(many(20), 1600).splitlines()
    assert len(lines) == 22 and all(line.endswith("…") for line in lines[2:])


def test_what_does_not_fit_is_counted():
    assert format_list(many(300), 400).splitlines()[-1].endswith("more: skills_list")


def test_a_skill_that_only_the_person_starts_is_not_listed():
    assert format_list([Skill("tea", "Makes tea.", for_model=False)], 3200) == ""


def test_a_description_cannot_add_lines_or_hidden_characters_to_the_prompt():
    text = format_list([Skill("tea", "Makes\n# tea\u200b\u202e.")], 3200)
    assert text == HEAD + "- tea: Makes # tea.\n"


def test_a_command_sends_the_text_with_its_folder_files_and_arguments():
    skill = Skill("tea", "Makes tea.", folder="/skills/tea")
    text = format_message(skill, "Run ${CLAUDE_SKILL_DIR}/boil.sh.", ["SKILL.md", "boil.sh"], "two cups")
    assert "Run /skills/tea/boil.sh." in text and "Its files: boil.sh." in text and text.endswith("\n\ntwo cups")


def test_arguments_are_put_where_the_skill_wants_them():
    text = format_message(Skill("tea", folder="/x"), "Make $ARGUMENTS now; awk '{print $1}'", [], "two cups")
    assert "Make two cups now; awk '{print $1}'" in text and not text.endswith("two cups")


def test_allowed_tools_name_ours_and_those_of_other_programs():
    assert allowed_tools(None) is None
    found = allowed_tools(("Bash(git:*)", "Read", "mcp__x__y"))
    assert {"terminal", "read_file", "mcp__x__y", "skill_view"} <= {*found} and "write_file" not in found
