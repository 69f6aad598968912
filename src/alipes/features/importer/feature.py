"""Import: brings the home of another agent over, with a plan before and an undo after."""

from alipes.features.feature import CliCommand, Feature


class ImporterFeature(Feature):
    name = "importer"
    parts = ("doctor",)
    cli_commands = (CliCommand("import", "alipes.features.importer.cli"),)
