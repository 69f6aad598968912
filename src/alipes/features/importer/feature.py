"""Import: brings the home of another agent over, with a plan before and an undo after."""

from alipes.features.feature import Feature


class ImporterFeature(Feature):
    name = "importer"
