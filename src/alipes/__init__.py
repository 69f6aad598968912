"""alipes: a personal agent that stops when you say stop and never loses a message."""

__version__ = "0.2.0"
