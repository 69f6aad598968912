"""What `alipes webhook --help` prints."""

WEBHOOK = """\
usage: alipes webhook [list] [--json]              list webhooks and how often they were used
       alipes webhook add NAME [--prompt TEXT] [OPTIONS]    create one; its secret is shown once
       alipes webhook test NAME [--body JSON]      send a signed request to the running server
       alipes webhook tools NAME --tools NAMES     change the tools it may use
       alipes webhook secret NAME [--secret]       replace its secret
       alipes webhook remove NAME                  remove one

A signed request to /hooks/NAME of `alipes serve` starts a turn. TEXT is the prompt;
{body.path} and {headers.name} are replaced by values of the request, which the model
treats as data and never as instructions. Without them, the whole body is added.
`alipes schedule add "on webhook NAME" PROMPT` adds a job that a request starts, with the
policies of jobs; a webhook that only starts jobs needs no prompt of its own.

options:
  -p, --prompt TEXT     the prompt for each request
  --to TARGET           send the answer there, as for `alipes send` (default: nowhere)
  --style STYLE         signature: standard (Standard Webhooks) or github
  --secret              read the secret from standard input instead of creating one
  --tools NAMES         allow these tools, separated by commas (default: none)
  -m, --model MODEL     use this model, as provider/name
  --rate N              requests per minute (default 60); 0 = unlimited
  --together            use one conversation for all requests (default: one each)
  --schema SCHEMA       the answer is a JSON document that matches this JSON schema: JSON, or a file
  --body JSON           for test: the body to send; @FILE reads it from a file
  --json                for list: print one JSON document instead of text
  -h, --help            show this page

Exit status: 0 done; 1 the test request was rejected; 2 wrong usage or settings.
"""
