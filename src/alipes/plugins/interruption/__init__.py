"""Interrupts plugin code that blocks the event loop or does not end."""
