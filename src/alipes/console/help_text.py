"""The `--help` pages. `docs/cli.md` is compared with them."""

TOP = """\
alipes: a personal agent that stops when you tell it to and never loses a message

usage: alipes [OPTIONS]            start a conversation
       alipes [OPTIONS] QUESTION   ask one question; the same as `alipes ask`
       alipes COMMAND [...]        run one command; see `alipes COMMAND --help`

commands:
  ask         ask one question and print the answer
  setup       connect a model: provider, key, model
  sessions    list, show, search, export or delete conversations
  model       show the available models, choose another one
  config      show, explain or change settings
  secrets     list, save or remove keys and passwords
  plugins     list, enable, install, update or create plugins
  skills      list, install and check skills
  memory      show and change the notes that conversations see
  mcp         add, test, list and remove MCP servers
  agents      add, test, log in to and remove other agents
  install     list and install the packages that features need
  doctor      check that everything works
  update      install another version, or go back
  profile     list, create, clone or remove profiles: separate homes
  usage       token usage and cost by day, model, conversation, task and tool
  backup      write everything into one file
  restore     restore from a backup
  import      bring the home of another agent over
  store       show the store, or move it to PostgreSQL and back
  serve       answer in your chats: Telegram, Discord and others
  page        log a browser in to the page of `alipes serve`
  pair        approve people who message the bot
  approvals   list what the agent may do without asking, and revoke it
  send        send a message to a chat, without a model
  webhook     trigger a turn from other services
  schedule    run prompts and scripts at set times
  mcp         offer conversations to MCP clients
  acp         serve an editor: Zed, JetBrains, Emacs, Neovim
  completion  print the completion script for bash, zsh or fish
  man         print the manual page

options:
  -m, --model MODEL     use this model, as provider/name
  -c, --continue        continue the latest conversation of this folder
  -r, --resume [NAME]   continue a conversation by id or title; without NAME, choose one
  --session NAME        use the conversation called NAME; it is created if needed
  -p, --print           ask one question and print the answer, as `ask` does
  -y, --yes             approve everything without asking
  --mode MODE           permission mode: ask, edits, plan or all
  --plain               plain lines instead of a screen, for screen readers and logs
  -P, --profile PROFILE   use this profile: its own settings, memory, skills, bots and keys
  --safe                do not load any plugins
  -V, --version         show the version
  -h, --help            show this page
"""

ASK = """\
usage: alipes ask [OPTIONS] PROMPT...

Ask one question. The answer streams to standard output, everything else goes to standard
error. Piped input is added to the prompt as context; without PROMPT, it is the prompt.

options:
  -m, --model MODEL     use this model, as provider/name
  --session NAME        use the conversation called NAME (default: a new one)
  -c, --continue        continue the latest conversation of this folder
  -r, --resume NAME     continue a conversation by id or title
  -i, --image FILE      attach this image (PNG, JPEG, GIF, WebP; repeatable)
  -y, --yes             approve everything without asking
  --mode MODE           permission mode: ask, edits, plan or all
  --plain               print the answer as the model wrote it, also at a terminal
  --schema SCHEMA       print a JSON document that matches this JSON schema: JSON, or a file
  --safe                do not load any plugins
  --json                print every event as one line of JSON, and nothing else
  -v, --verbose         also show thinking, the model and the cost
  -q, --quiet           show only the answer and errors
  -h, --help            show this page

At a terminal, dangerous tool calls ask for approval; elsewhere they are refused unless
--yes is given. Ctrl-C stops the turn. Exit status: 0 answered; 1 failed, or out of steps;
2 wrong usage or settings; 3 answered, but a tool call was refused; 4 gave up: the answer
does not match the schema; 130 stopped; 141 the reader of the answer is gone.
"""

SETUP = """\
usage: alipes setup [OPTIONS]

Connect a model: choose a provider, paste its key, choose a model. The key and the model
are tested with a real request before anything is saved; Ctrl-C cancels. Options that you
give are not asked for. Without a terminal, all of them are needed.

options:
  --provider NAME       anthropic, openai, ollama, embedded, ... or a name of your choice
  --key-env VARIABLE    the key is already in this variable
  --key-stdin           read the key from standard input and save it in .env
  --model NAME          the model, as the provider calls it
  --base-url URL        the address of your own server or gateway
  --api API             its API: openai-chat (default), openai-responses, anthropic
  --no-check            do not test the key and the model
  -y, --yes             save without asking
  -h, --help            show this page

Exit status: 0 saved; 1 the test failed; 2 wrong usage or settings, or a missing option;
130 cancelled. Unless it is 0, nothing changed.
"""

SESSIONS = """\
usage: alipes sessions list [--here] [-n COUNT] [--json]
       alipes sessions show NAME [--json]
       alipes sessions search WORDS... [-n COUNT] [--json]
       alipes sessions export NAME [--format md|html|json] [-o FILE]
       alipes sessions delete NAME [--yes]

NAME is the name of a conversation, its id, or the start of its id.

options:
  -n, --limit COUNT     show at most this many (default 20)
  --here                list only conversations of this folder
  -f, --format FORMAT   md for reading (default), html for a browser, json for everything;
                        a FILE that ends in .html or .json chooses it too
  -o, --output FILE     write to FILE instead of standard output
  -y, --yes             delete without asking
  --json                print one JSON document instead of text
  -h, --help            show this page
"""

MODEL = """\
usage: alipes model [--live] [--all]        show the model in use, and the others
       alipes model [--live] [--anyway] NAME     use NAME from now on
       alipes model --refresh WHERE          take windows and prices from this catalog

NAME is provider/model, a provider alone (its default model), or a model alone if only
one provider has it. The choice is saved in config.toml.

options:
  --live                also ask the providers for their lists
  --all                 also show models of providers without a key
  --anyway              use NAME even if it is unknown
  --refresh WHERE       the file or address of a catalog: JSON with facts by
                        provider/model. It is kept in the home; [models] overrides it
  -h, --help            show this page

Exit status: 0 done; 2 wrong usage or settings, or no such model; then nothing changed.
"""

CONFIG = """\
usage: alipes config show             show all settings and where each comes from
       alipes config get KEY          print the value of one
       alipes config why KEY          print its value, origin and meaning
       alipes config set KEY VALUE    change one in config.toml; comments are preserved
       alipes config unset KEY        remove one from config.toml
       alipes config path             print the path of config.toml

KEY is a dotted name such as serve.port, providers.mine.base_url or
models."openai/gpt-5.5".window. A KEY in capitals, such as OPENAI_API_KEY, is a
secret: `set` saves it in .env, `unset` removes it from there, and a VALUE of -
reads it from standard input.

options:
  -h, --help            show this page

Exit status: 0 done; 2 wrong usage or settings.
"""

PLUGINS = """\
usage: alipes plugins list [--json]               list plugins and their state
       alipes plugins enable NAME                 load it from the next start
       alipes plugins disable NAME                stop loading it
       alipes plugins accept NAME                 show its changed files, ask, load it again
       alipes plugins install SOURCE              fetch it, show what it can do, ask, enable it
       alipes plugins update NAME                 the same with its newest version
       alipes plugins update --rollback NAME      return to the previous version
       alipes plugins remove NAME                 disable and delete it
       alipes plugins doctor [NAME] [--json]      load each one and report problems
       alipes plugins new NAME [--hermes]         create one, with tests, in the folder NAME

SOURCE is a folder, a Git URL, owner/name on GitHub, an archive (.zip, .tar.gz), a package or a
wheel. Fetched code does not run until you approve it; its exact version is recorded. A plugin
whose files change later is not loaded until you accept them.

options:
  --ref REF             for a Git repository: this branch, tag or commit
  --folder PATH         the plugin is in this folder of SOURCE
  --entry NAME          for a source with several entry points: this one
  --no-enable           install without enabling
  --no-packages         do not install the packages that it needs
  -y, --yes             do not ask
  --json                print one JSON document instead of text
  -h, --help            show this page

Exit status: 0 done; 1 declined, or the doctor found a problem;
2 wrong usage or settings, or SOURCE is not available; then nothing changed.
"""

DOCTOR = """\
usage: alipes doctor [--live] [--json]
       alipes doctor --security [--json]

Check the installation, the settings, the database and the model. Each problem is shown
with its fix.

options:
  --live                also ask the model one short question (may cost a little)
  --security            check the sandbox, permissions, ports, keys, access, approvals,
                        plugins and versions instead
  --json                print one JSON document instead of text
  -h, --help            show this page

Exit status: 0 no problems (notes do not count); 1 problems found.
"""

SECRETS = """\
usage: alipes secrets [list] [--json]              list names and sources, never values
       alipes secrets set NAME                     save a value, read without echo or from a pipe
       alipes secrets remove NAME                  remove a saved value

Keys, tokens and passwords by name: those that settings use, and the others in .env. A value
comes from the environment, from .env, or, if secret_store = "keyring", from the keyring of
the operating system. `set` writes to .env (mode 0600), or to the keyring.

options:
  --json                for list: print one JSON document instead of text
  -h, --help            show this page

Exit status: 0 done; 2 wrong usage or settings.
"""

BACKUP = """\
usage: alipes backup FILE

Write conversations, settings, plugins and files into FILE and verify it. This also works
while alipes is running. Keys (.env) and secrets of webhooks are not included; an existing
file is not overwritten.

options:
  -h, --help            show this page
"""

RESTORE = """\
usage: alipes restore FILE [--to HOME] [--dry-run] [--force] [--continue]

Restore a home from a file of `alipes backup`. FILE is verified before anything changes.
Turns and messages that were unfinished when the backup was made are ended, because they
may have finished since (`alipes serve outbox again` sends a message after all).

options:
  --to HOME             restore to another home than the default
  --dry-run             verify FILE and show what would happen
  --force               move an existing home aside; its keys are copied
  --continue            resume the turns and messages of the backup
  -h, --help            show this page
"""

STORE = """\
usage: alipes store [--json]                 show where conversations are stored
       alipes store move TARGET [--switch]   copy everything into another store

TARGET is postgresql://USER@HOST/DATABASE (empty), `sqlite` (the file of this home) or the
path of a new SQLite file. Stop alipes first. The old store is not changed.

options:
  --switch              write the new store to config.toml; else the line is printed
  --json                print one JSON document instead of text
  -h, --help            show this page
"""

PROFILE = """\
usage: alipes profile [list] [--json]             list the profiles
       alipes profile new NAME                    create an empty one
       alipes profile clone SOURCE NAME [--with-keys]     create one with the settings of another
       alipes profile remove NAME [--confirm NAME]        delete one with everything in it

A profile is a complete home of its own. `alipes -P NAME` uses it, with every command;
ALIPES_PROFILE chooses it for a whole shell. The profile `default` is the home itself. A
clone gets settings, memory, skills and plugins, but no conversations.

options:
  --with-keys           for clone: also copy the keys in .env, except the API key
  --confirm NAME        for remove: the name again, where there is no terminal to ask on
  --json                print one JSON document instead of text
  -h, --help            show this page

Exit status: 0 done; 1 not confirmed; 2 wrong usage or settings, or the profile is in use.
"""

SERVE = """\
usage: alipes serve [OPTIONS]                     answer in your chats until stopped
       alipes serve outbox [list] [--all] [--json]     list queued and failed messages
       alipes serve outbox again NUMBER           retry a failed message
       alipes serve outbox drop NUMBER            discard a message
       alipes serve key [--new]                   print your own API key, which may do everything
       alipes serve key list [--json]             list the keys
       alipes serve key add NAME [--scope SCOPE] [--days N] [--rate N] [--unlisted]
                                                  create one; shown once
       alipes serve key revoke NAME               revoke a key
       alipes serve install [--system] [--write]  create a systemd service

A messenger is served if its token is set (TELEGRAM_BOT_TOKEN, DISCORD_BOT_TOKEN,
SLACK_BOT_TOKEN and SLACK_APP_TOKEN) or its table is configured ([matrix], [email], [irc]).
SIGTERM exits: no new messages are accepted, running turns reach a safe point, queued
messages are sent. SIGHUP restarts in the same way. Unfinished turns resume afterwards.
Several profiles, given by -P or in serve.profiles, are served by one process, each with its
own bots, keys and port. One that cannot be opened does not stop the others.

options:
  -P, --profile PROFILE   serve this profile (repeatable)
  --host HOST           listen on HOST instead of serve.host
  --port PORT           listen on PORT instead of serve.port; 0 = any free port
  --replace             replace the process that already serves this home
  --safe                do not load any plugins
  --all                 for the outbox: also show sent messages
  --json                for the outbox and the keys: print one JSON document
  --new                 for the key: create a new one
  --scope SCOPE         for a key: read, run (default; includes read) or admin (everything)
  --days N              for a key: expires after N days (default: never)
  --rate N              for a key: requests per minute (default: api.rate); 0 = unlimited
  --unlisted            for a key: the page does not show its conversations
  --system              for install: a system service instead of a user service
  --write               for install: write the unit file instead of printing it
  -h, --help            show this page

Exit status: 0 done; 1 failed; 2 wrong usage or settings, or this home is already served.
"""

PAGE = """\
usage: alipes page [OPTIONS]          print a link that logs one browser in, once
       alipes page list [--json]      list browsers that are logged in
       alipes page revoke BROWSER     log a browser out
       alipes page revoke --all       log all browsers out
       alipes page share CONVERSATION [--days N]      print a link that shows a conversation
       alipes page share CONVERSATION --file FILE     write it as one HTML file instead
       alipes page shares [--json]    list these links
       alipes page unshare LINK       end a link, by its id

`alipes serve` shows the page. A link is valid for five minutes. A browser stays logged in
until 30 days pass without use. BROWSER is an id of `list`, its start, or a unique name.

Everybody who has the link of `share` can read this one conversation as it is now, without a login,
and can do nothing else. CONVERSATION is an id, its start, or a title.

options:
  --open                open the link in the browser of this machine
  --qr                  also show the link as a QR code, for a phone
  --scope SCOPE         admin (default; may do everything) or read (may change nothing)
  --name NAME           what the browser is called in the list (default: what it says)
  --all                 for revoke: all browsers
  --days N              for share: the link expires after N days (default: 7, at most 365)
  --file FILE           for share: write the conversation to FILE; `-` is the standard output
  --json                print one JSON document instead of text
  -h, --help            show this page

Exit status: 0 done; 1 `alipes serve` is not running; 2 wrong usage or settings.
"""

INSTALL = """\
usage: alipes install [--json]    list the extras: what features need besides the core
       alipes install NAME...     install extras in the pinned versions; `all` for every one

The packages go into the environment of this alipes, with uv if it is on the PATH, else
with pip. What was installed is remembered in the home, and installed again if it is gone
after an upgrade.

options:
  --json                print one JSON document instead of text
  -h, --help            show this page

Exit status: 0 done; 2 wrong usage, or they could not be installed.
"""

PAIR = """\
usage: alipes pair [list] [--json]        list paired people and requests
       alipes pair CODE [--owner|--user]  approve the person who got CODE
       alipes pair revoke WHO             revoke someone's access

Unknown people who message the bot get a code that is valid for one hour. Owners can
approve others from a chat; the first person you approve is one, unless you add --user.
WHO is PLATFORM:ID as shown by `list`, or a name that only one person has.

options:
  --owner               may also approve others and restart the gateway
  --user                may only talk to the bot
  --json                print one JSON document instead of text
  -h, --help            show this page

Exit status: 0 done; 1 unknown code; 2 wrong usage or settings, or no such person.
"""

APPROVALS = """\
usage: alipes approvals [list] [--json]     list open questions and what is allowed
       alipes approvals show ID [--json]    show all of one, and exactly what it allows
       alipes approvals revoke ID|--all     revoke it, or all of them

Answers `always` and `this session` are kept until you revoke them or, for a session, delete
the conversation. ID is the start of an id that `list` shows.

options:
  --all                 with revoke: everything that is allowed
  --json                print one JSON document instead of text
  -h, --help            show this page

Exit status: 0 done; 1 it allows nothing, or is still open; 2 wrong usage, or no such id.
"""

SEND = """\
usage: alipes send [OPTIONS] TARGET [TEXT...]

Send TEXT, or the piped input, to a chat without a model. The `alipes serve` of this home
delivers it, once, now or as soon as it runs.

TARGET is PLATFORM:CHAT or PLATFORM:CHAT:THREAD with the platform's own ids, PLATFORM
alone for the chat where /sethome was used, or `home` if only one platform has such a chat.

options:
  -f, --file FILE       attach this file (repeatable)
  -w, --wait SECONDS    wait this long for the delivery and report its result
  -h, --help            show this page

Exit status: 0 queued, or with --wait delivered; 1 not delivered in time, or failed;
2 wrong usage or settings.
"""

ACP = """\
usage: alipes acp [OPTIONS]

Serve an editor over standard input and output, with the Agent Client Protocol. The editor
starts this command; docs/editors.md shows how to configure Zed, JetBrains, Emacs and Neovim.
Conversations belong to the folder that is open in the editor: `alipes -c` continues them.

options:
  -m, --model MODEL     use this model in new conversations, as provider/name
  --mode MODE           permission mode of new conversations: ask, edits, plan or all
  --safe                do not load any plugins
  -h, --help            show this page
"""

COMPLETION = """\
usage: alipes completion bash|zsh|fish     print the completion script for this shell
       alipes completion models|sessions   print names, one per line, as the scripts use them

bash: add `source <(alipes completion bash)` to ~/.bashrc. zsh: save the output as _alipes in
a folder of $fpath. fish: save it as ~/.config/fish/completions/alipes.fish.

options:
  -h, --help            show this page
"""

MAN = """\
usage: alipes man

Show the manual page, or print it as roff if the output is not a terminal.

options:
  -h, --help            show this page
"""
