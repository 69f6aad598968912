"""Web search, and reading web pages."""
