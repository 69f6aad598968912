"""OpenAI-compatible endpoints of the API, for clients of other programs."""

from alipes.features.feature import Feature


class OpenAiFeature(Feature):
    name = "openai"
    parts = ("endpoints",)
