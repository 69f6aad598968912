"""What `alipes mcp --help` prints."""

MCP = """\
usage: alipes mcp [list] [--json]                  list the servers, and those of this folder
       alipes mcp add NAME [OPTIONS] -- COMMAND [ARGUMENTS...]   add a server that is started here
       alipes mcp add NAME --url URL [OPTIONS]     add a server that is reached over HTTP
       alipes mcp test NAME [--yes] [--json]       connect, and show what it offers
       alipes mcp import [SOURCE] [NAME...]        copy servers of another program
       alipes mcp accept [NAME] [--yes]            accept servers of this folder, and changed tools
       alipes mcp login NAME [--no-browser]        log in with a browser (OAuth)
       alipes mcp logout NAME                      log out
       alipes mcp logs NAME [-n COUNT]             show what a server logged
       alipes mcp remove NAME                      remove a server and its login
       alipes mcp serve [--safe]                   offer conversations to an MCP client that starts this

Servers are kept in [mcp.servers.NAME] of config.toml. Those in .mcp.json of this folder are
used once you have accepted them; a changed entry must be accepted again. What is added,
changed or removed is used from the next turn on, also by alipes that runs already. SOURCE is
claude-desktop, claude-code, cursor, hermes or a file; without it, what there is to import
is listed. Keys and passwords are written to .env, never to config.toml.

With serve, the client asks, follows, stops and answers questions over standard input and
output. Over HTTP, `alipes serve` offers the same at /mcp, with its API keys.

options:
  --url URL             for add: its address
  --header HEADER       for add: NAME=TEXT, sent with every request (repeatable)
  --env VARIABLE        for add: NAME=TEXT, or NAME to take it from .env (repeatable)
  --cwd FOLDER          for add: run the program in this folder (default: that of the conversation)
  --no-test             for add: do not connect now
  --no-browser          for login: print the address instead of opening a browser
  -n, --lines COUNT     for logs: show at most this many lines (default 50)
  -y, --yes             for import, accept, add and test: do not ask; add and test may then connect anywhere
  --safe                for serve: do not load any plugins
  --json                for list and test: print one JSON document instead of text
  -h, --help            show this page

Exit status: 0 done; 1 the server could not be used; 2 wrong usage or settings.
"""
