"""The help page of `alipes update`."""

UPDATE = """\
usage: alipes update [--to VERSION] [--channel NAME] [--source PLACE] [--yes]
       alipes update --check [--json]
       alipes update --back [--restore]
       alipes update --notes

Install another version beside this one, try it on a copy of your home, back the home up, and
start the new version from then on. Until the last step nothing changes, and it can be broken
off at any time. A running `alipes serve` finishes or suspends its turns and continues with the
new version. Extras are installed again. With uv and pipx, their own command installs the version
after it was tried; in a container, the commands to run outside are printed.

options:
  --check               only say whether there is a newer version
  --to VERSION          this version instead of the newest; with a Git source also a commit
  --back                start the version before the last update again
  --restore             with --back: also bring the conversations of that time back, if the old
                        version cannot read the present ones; those are kept in a file
  --channel NAME        stable or next (default: update.channel)
  --source PLACE        index, a folder with wheels, or a Git address (default: update.source)
  --notes               show what is new in this version
  -y, --yes             do not ask
  --json                print one JSON document instead of text
  -h, --help            show this page

Exit status: 0 done, or nothing newer; 1 with --check: there is a newer version; 2 wrong usage or
settings, or the version was refused.
"""
