"""What `alipes schedule --help` prints."""

SCHEDULE = """\
usage: alipes schedule [list] [--json]                   list jobs, their next time and last run
       alipes schedule add WHEN PROMPT [OPTIONS]         add a job
       alipes schedule add WHEN --script COMMANDS        add a script, which costs no tokens
       alipes schedule show NAME                         show a job and its next three times
       alipes schedule edit NAME [OPTIONS]               change a job
       alipes schedule pause|resume|stop|remove NAME     pause it, stop its run, or remove it
       alipes schedule run NAME [--no-wait]              run it now and print the answer
       alipes schedule history [NAME] [-n COUNT]         show the latest runs

WHEN is a time such as "in 30m", "every 2h", "every weekday at 9", "tomorrow at 17:00",
"first monday of the month at 10:00", a cron expression or an ISO time; or an event:
"after JOB", "on file PATH", "on mail from:NAME", "on webhook NAME". Jobs run while
`alipes serve` is running.

options:
  --name NAME           name of the job (default: from the prompt)
  --when WHEN           for edit: another time
  -p, --prompt TEXT     the task; it must be complete in itself
  --script COMMANDS     shell commands instead of a prompt; - reads them from standard input
  --to TARGET           who gets the answer: home, PLATFORM[:CHAT[:THREAD]], a web address,
                        files or none (default: home, else files; repeatable)
  -m, --model MODEL     use this model only, as provider/name
  --tools NAMES         allow only these tools, separated by commas; for edit: all
  --skill NAME          load this skill in each run, as /NAME does in a conversation (repeatable)
  --folder PATH         the folder in which it works (default: this one)
  --mode MODE           ask (default: risky calls are denied), edits, plan or all
  --budget AMOUNT       what one run may spend, such as $0.50 or "20k tokens"
  --daily-budget AMOUNT  what its runs of a day may spend
  --timezone ZONE       such as Europe/Berlin (default: the setting timezone)
  --schema SCHEMA       the answer is a JSON document that matches this JSON schema: JSON, or a file
  --missed POLICY       after a pause: once (default), skip, or an age such as 2h
  --overlap POLICY      if the last run still runs: skip (default), queue or parallel
  --jitter TIME         start up to this much later, such as 5m
  --retries N           tries after a failure (default 0)
  --retry-after TIME    pause before the first retry, then doubled (default 1m)
  --quiet-hours HOURS   no runs then, such as 22:00-07:00
  --together            use one conversation for all runs (default: one each)
  --no-wait             for run: do not wait for the answer
  -n, --limit COUNT     for history: how many runs (default 20)
  -y, --yes             for remove: do not ask
  --json                print one JSON document instead of text
  -h, --help            show this page

Exit status: 0 done; 1 the run failed; 2 wrong usage or settings.
"""
