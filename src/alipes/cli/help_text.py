"""What `--help` says, page by page. Plain text only; `docs/cli.md` is compared with it."""

TOP = """\
alipes: a personal agent that stops when told to and never loses a message

usage: alipes [OPTIONS]            talk
       alipes COMMAND [...]        do one thing; `alipes COMMAND --help` tells more

commands:
  ask         one question, one answer on standard output
  setup       a short guided start: provider, key, model
  sessions    list, show, search, export or delete conversations
  model       show the models there are, choose another
  config      show, explain or change settings
  plugins     list, enable, install, update or write plugins
  skills      the texts that plugins offer the model to read
  doctor      check that everything works, and say what to do where it does not
  usage       what models used and cost, by day, model, conversation, task and tool
  backup      write a whole home into one file
  restore     make a home of such a file
  serve       answer in your chats: Telegram, Discord and what plugins bring
  pair        let people in who wrote to the bot
  send        write into a chat, without a model
  webhook     ways in for what happens elsewhere: add, list, test, remove

options:
  -m, --model MODEL     ask this model, as provider/name
  --session NAME        talk in the conversation called NAME
  -c, --continue        go on with the latest conversation of this terminal
  -y, --yes             allow beforehand whatever would be asked
  --safe                load no plugin, whatever is enabled
  -V, --version         show the version
  -h, --help            show this page
"""

ASK = """\
usage: alipes ask [OPTIONS] PROMPT...

Ask once. The answer streams to standard output, everything else goes to standard
error. Piped input is added to the prompt as context, or is the prompt if none is given.

options:
  -m, --model MODEL     ask this model, as provider/name
  --session NAME        ask in the conversation called NAME (default: a new one)
  -c, --continue        ask in the latest conversation of this terminal
  -i, --image FILE      show this image to the model (PNG, JPEG, GIF, WebP; repeatable)
  -y, --yes             allow beforehand whatever would be asked
  --safe                load no plugin, whatever is enabled
  --json                print every event as one line of JSON, and nothing else
  -v, --verbose         also show the thinking, the model and what it cost
  -q, --quiet           show the answer and errors only
  -h, --help            show this page

Ctrl-C stops the turn. Exit status: 0 answered; 1 failed, or out of steps;
2 wrong usage or settings; 130 stopped; 141 nobody reads the answer.
"""

SESSIONS = """\
usage: alipes sessions list [-n COUNT] [--json]
       alipes sessions show NAME [--json]
       alipes sessions search WORDS... [-n COUNT] [--json]
       alipes sessions export NAME [--format md|json] [-o FILE]
       alipes sessions delete NAME [--yes]

NAME is a conversation's name, its id, or the beginning of its id.

options:
  -n, --limit COUNT     show at most so many (default 20)
  -f, --format FORMAT   md (default) reads well, json keeps everything
  -o, --output FILE     write there instead of to standard output
  -y, --yes             delete without asking back
  --json                one JSON document instead of text
  -h, --help            show this page
"""

PLUGINS = """\
usage: alipes plugins list [--json]               which there are, and how they fare
       alipes plugins enable NAME                 load it from the next start on
       alipes plugins disable NAME                load it no more
       alipes plugins install SOURCE              fetch it, show what it can do, ask, enable it
       alipes plugins update NAME                 the same with its newest version
       alipes plugins update --rollback NAME      back to the version before
       alipes plugins remove NAME                 disable and delete it
       alipes plugins doctor [NAME] [--json]      open each, and say what is wrong with it
       alipes plugins new NAME [--hermes]         begin one, with tests, in the folder NAME

SOURCE is a folder, the address of a Git repository, a package or a wheel. What is
fetched is not run before you said yes to it, and its exact version is written down.

options:
  --ref REF             of a Git repository: this branch, tag or commit
  --folder PATH         the plugin is in this folder of SOURCE
  --entry NAME          of a package with several plugins: this one
  --no-enable           install, and do not enable
  -y, --yes             do it without asking back
  --json                one JSON document instead of text
  -h, --help            show this page

Exit status: 0 done; 1 not agreed to, or the doctor found something wrong;
2 wrong usage or settings, or it cannot be had; then nothing was changed.
"""

SKILLS = """\
usage: alipes skills [list] [--json]     the skills that enabled plugins offer
       alipes skills show NAME           the text of one

A skill is a text that the model reads when it needs it.

options:
  --json                one JSON document instead of text
  -h, --help            show this page
"""

DOCTOR = """\
usage: alipes doctor [--live] [--json]

Check everything alipes stands on, and say what to do where something is wrong.

options:
  --live                also ask the model one short question (this may cost a little)
  --json                one JSON document instead of text
  -h, --help            show this page

Exit status: 0 all is well (remarks included); 1 something needs to be done.
"""

USAGE = """\
usage: alipes usage [--days N] [--json]

What models used in the last N days, with today: a bar for each day, and sums by model,
conversation, task (answers, compaction, titles, ...) and tool. Calls whose price is not
known are said to be so; they are in the tokens, and in no sum of money.

options:
  -d, --days N          so many days (default 30)
  --json                one JSON document instead of text
  -h, --help            show this page
"""

BACKUP = """\
usage: alipes backup FILE

Write conversations, settings, plugins and files into FILE, also while alipes is running,
and read it once more. Keys (.env) are left out; an existing file is not overwritten.

options:
  -h, --help            show this page
"""

RESTORE = """\
usage: alipes restore FILE [--to HOME] [--dry-run] [--force] [--continue]

Make a home of what `alipes backup` wrote, on this machine or another. All of FILE is
checked before anything is changed. Turns that were under way when it was written are over,
and messages that were not sent yet are given up (`alipes serve outbox again` sends one):
they may have been done and sent since.

options:
  --to HOME             another home than the usual
  --dry-run             check, say what would happen, change nothing
  --force               move aside a home that is there; its keys are taken over
  --continue            go on with turns and messages where the backup stopped
  -h, --help            show this page
"""

SERVE = """\
usage: alipes serve [OPTIONS]                     answer in your chats until told to leave
       alipes serve outbox [list] [--all] [--json]     what is owed, and what was given up
       alipes serve outbox again NUMBER           try one once more that was given up
       alipes serve outbox drop NUMBER            give one up for good
       alipes serve key [--new]                   your own key for the API; it may do everything
       alipes serve key list [--json]             all keys, but for themselves
       alipes serve key add NAME [--scope SCOPE] [--days N] [--rate N]     one more, shown once
       alipes serve key revoke NAME               it opens nothing any more
       alipes serve install [--system] [--write]  a service that systemd starts and watches

A messenger is served when its token is there (TELEGRAM_BOT_TOKEN, DISCORD_BOT_TOKEN,
SLACK_BOT_TOKEN and SLACK_APP_TOKEN) or its table is filled ([matrix], [email], [irc]).
SIGTERM leaves: nothing more is taken in, what runs comes to a safe point, what is owed
is delivered. SIGHUP does the same and begins anew. What is not over goes on afterwards.

options:
  --host HOST           listen there instead of at serve.host
  --port PORT           listen there instead of at serve.port; 0: wherever there is room
  --replace             take over from the one that serves this home already
  --safe                load no plugin, whatever is enabled
  --all                 of the outbox: also what was delivered
  --json                of the outbox and the keys: one JSON document instead of text
  --new                 of the key: make another
  --scope SCOPE         of a key: read, run (default; it also reads) or admin (everything)
  --days N              of a key: it opens nothing after so many days (default: never)
  --rate N              of a key: requests a minute (default: api.rate); 0: any number
  --system              of install: a service of the machine instead of yours
  --write               of install: write it where systemd looks, instead of showing it
  -h, --help            show this page

Exit status: 0 done; 1 failed; 2 wrong usage or settings, or another one serves already.
"""

PAIR = """\
usage: alipes pair [list] [--json]        who may speak, and who asked to
       alipes pair CODE [--owner|--user]  let in whoever was shown CODE
       alipes pair revoke WHO             let them speak no more

Who writes to the bot and is not known is shown a code, valid for an hour. An owner may let
others in from a chat; the first person let in is one, unless --user says otherwise.
WHO is PLATFORM:ID as `list` shows it, or a name there that only one person has.

options:
  --owner               they may let others in, and restart the gateway
  --user                they may speak, and no more
  --json                one JSON document instead of text
  -h, --help            show this page

Exit status: 0 done; 1 nobody has this code; 2 wrong usage or settings, or no such person.
"""

SEND = """\
usage: alipes send [OPTIONS] TARGET [TEXT...]

Write TEXT into a chat, without a model; without TEXT, what is piped in. It is delivered by
the `alipes serve` of this home, now or when there is one again, and once.

TARGET is PLATFORM:CHAT or PLATFORM:CHAT:THREAD, with the platform's own ids, or PLATFORM
alone for the chat where /sethome was said; `home` where only one platform has such a chat.

options:
  -f, --file FILE       send this file along (repeatable)
  -w, --wait SECONDS    wait so long for it to be there, and say what became of it
  -h, --help            show this page

Exit status: 0 owed, or with --wait delivered; 1 not delivered in time, or given up;
2 wrong usage or settings.
"""

WEBHOOK = """\
usage: alipes webhook [list] [--json]              which there are, and how often they were used
       alipes webhook add NAME --prompt WORDS [OPTIONS]      make one; its secret is shown once
       alipes webhook test NAME [--body JSON]      bring something, signed, to the one that serves
       alipes webhook remove NAME                  it takes nothing any more

What is sent to /hooks/NAME of `alipes serve`, signed with the secret, becomes a turn. WORDS
say what is to be done; {body.path} and {headers.name} stand for what arrives, which is given
to the model as material and never as an instruction. Without them, the whole body is given.

options:
  -p, --prompt WORDS    what is to be done when something arrives
  --to TARGET           tell the answer there, as `alipes send` does (default: nowhere)
  --style STYLE         how it is signed: standard (Standard Webhooks) or github
  --secret              take the secret from standard input instead of making one
  --tools NAMES         only these tools may be used, with commas between; "" for none
  -m, --model MODEL     ask this model, as provider/name
  --rate N              deliveries a minute (default 60); 0: any number
  --together            all deliveries in one conversation (default: each has its own)
  --body JSON           of test: what is brought; @FILE: what the file holds
  --json                of list: one JSON document instead of text
  -h, --help            show this page

Exit status: 0 done; 1 what was brought was not taken; 2 wrong usage or settings.
"""
