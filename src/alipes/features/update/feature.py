"""Update: fetches another version of alipes, tries it on a copy of the home, and switches to it or back."""

from alipes.features.feature import CliCommand, Feature


class UpdateFeature(Feature):
    name = "update"
    parts = ("hooks", "doctor")
    cli_commands = (CliCommand("update", "alipes.features.update.cli"),)
