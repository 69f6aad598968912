import pytest

from alipes.features.update.version_number import is_release, is_version, order

IN_ORDER = ["0.1.0", "0.2.0.dev3", "0.2.0a1", "0.2.0b1", "0.2.0rc1", "0.2.0rc2", "0.2.0", "0.2.1", "0.10.0", "1.0"]


def test_versions_are_ordered_by_number_and_stage():
    assert sorted(reversed(IN_ORDER), key=order) == IN_ORDER


@pytest.mark.parametrize("text", ["latest", "", "0.2.0 ", "0.2.x", "../0.2.0"])
def test_other_texts_are_no_versions(text):
    assert not is_version(text) and order(text) < order("0.0.1")


def test_only_versions_without_a_stage_are_releases():
    assert [each for each in IN_ORDER if is_release(each)] == ["0.1.0", "0.2.0", "0.2.1", "0.10.0", "1.0"]
