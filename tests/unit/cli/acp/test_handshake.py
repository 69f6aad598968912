"""The handshake with an editor: the answer is what the protocol package expects, and bad values do no harm."""

import pytest
from acp.schema import InitializeResponse

from alipes.cli.acp.handshake import EditorFeatures, initialize_result, read_features


def test_the_answer_is_valid_for_the_protocol_package():
    answer = InitializeResponse.model_validate(initialize_result())
    assert answer.protocol_version == 1 and answer.agent_info is not None and answer.agent_info.name == "alipes"
    able = answer.agent_capabilities
    assert able is not None and able.load_session and able.prompt_capabilities is not None
    assert able.prompt_capabilities.image and able.prompt_capabilities.embedded_context
    assert able.session_capabilities is not None and able.session_capabilities.list is not None
    written = answer.model_dump(mode="json", by_alias=True, exclude_none=True, exclude_unset=True)
    assert written == initialize_result()


def test_features_are_read_from_the_capabilities():
    able = {"_meta": {"terminal_output": True}, "elicitation": {"form": {}}}
    found = read_features({"clientCapabilities": able, "clientInfo": {"name": "zed", "version": "1"}})
    assert found == EditorFeatures("zed", terminals=True, forms=True, newer_updates=True)


@pytest.mark.parametrize(
    "params",
    [{}, {"clientCapabilities": None}, {"clientCapabilities": {"_meta": 3, "elicitation": []}, "clientInfo": "x"}],
)
def test_missing_and_wrong_capabilities_count_as_absent(params: dict[str, object]):
    assert read_features(params) == EditorFeatures()
