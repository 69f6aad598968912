"""alipes: a personal agent that stops when told to and never loses a message."""

__version__ = "0.1.0"
