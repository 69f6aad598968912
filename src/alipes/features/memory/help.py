"""The help page of `alipes memory`."""

MEMORY = """\
usage: alipes memory [list]                       list all notes with their numbers
       alipes memory add [user] TEXT              add a note about the work, or about you
       alipes memory edit N TEXT                  change note N
       alipes memory merge N M TEXT               make one note of two
       alipes memory remove N                     remove note N
       alipes memory history                      list the changes
       alipes memory diff [N]                     show change N, or the last one
       alipes memory undo [N]                     take change N back, or the last one
       alipes memory pending                      list notes that wait for your decision
       alipes memory accept ID [TEXT]             save one, or TEXT instead
       alipes memory reject ID                    discard one

The notes are in memory/MEMORY.md and memory/USER.md of the home; `/memory` does the same in a
conversation. New conversations see changes.

options:
  -h, --help            show this page

Exit status: 0 done; 1 nothing changed, the text says why; 2 wrong usage or settings.
"""
