"""The help page of `alipes skills`."""

SKILLS = """\
usage: alipes skills [list] [--json]               list the skills, their state and their use
       alipes skills show NAME                    print one of them
       alipes skills install SOURCE [NAME ...]    fetch it, show it, ask, install it
       alipes skills update [NAME]                fetch the newest version, show the changes, ask
       alipes skills accept [NAME]                show skills of this project and changed ones, ask
       alipes skills remove NAME                  remove one of your own; its versions are kept
       alipes skills new NAME                     create one in your home, to be edited
       alipes skills check [NAME|FOLDER ...]      report problems and warnings
       alipes skills history NAME [--json]        list its versions
       alipes skills rollback NAME [VERSION]      return to an earlier version, ask
       alipes skills pending [ACTION] [ID]        list proposals; show, accept, edit or reject one
       alipes skills test NAME                    replay the turns it came from, and show what changed

A skill is a folder with a SKILL.md: instructions that the model reads when they fit a task, and
that you start with /NAME. SOURCE is a folder, a Git URL, owner/name on GitHub, or an archive
(.zip, .tar.gz), also as a URL. An installed skill is pinned to its files: if they change, it is
not used until you accept them. A skill cannot approve anything.

options:
  --ref REF             for a Git repository: this branch, tag or commit
  --folder PATH         the skills are in this folder of SOURCE
  --all                 install all skills of SOURCE
  --model MODEL         the model of `test`
  -y, --yes             do not ask
  --json                print one JSON document instead of text
  -h, --help            show this page

Exit status: 0 done; 1 declined, or a skill cannot be used; 2 wrong usage or settings, or SOURCE
is not available; then nothing changed.
"""
