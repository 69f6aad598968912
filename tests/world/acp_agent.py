#!/usr/bin/env python3
"""An agent for tests: speaks the Agent Client Protocol and does what the prompt says, one order per line.

Words after its name change how it behaves: `noise`, `babble`, `version=2`, `auth`, `auth-load`, `deaf`, `noload`,
`dies`, `silent`, `wordy`, `usage=texts`, `usage=quota`.
Its sessions are files in $ACP_TEST_HOME.
"""

import contextlib
import json
import os
import socket
import subprocess
import sys
import threading
import time

WORDS = sys.argv[1:]
HOME = os.environ.get("ACP_TEST_HOME", ".")
WAITING = {}
LOCK = threading.Lock()
NUMBERS = iter(range(1, 10**9))
CANCELLED = threading.Event()
SERVERS = {}


def send(message):
    with LOCK:
        sys.stdout.write(json.dumps({"jsonrpc": "2.0", **message}) + "\n")
        sys.stdout.flush()


def ask(method, **params):
    number, done = next(NUMBERS), threading.Event()
    WAITING[number] = done
    send({"id": number, "method": method, "params": params})
    done.wait()
    answer = WAITING.pop(number)
    if "error" in answer:
        raise RuntimeError(answer["error"]["message"])
    return answer["result"]


def update(session, **fields):
    send({"method": "session/update", "params": {"sessionId": session, "update": fields}})


def say(session, text):
    update(session, sessionUpdate="agent_message_chunk", content={"type": "text", "text": text})


def start_call(session, title, kind, **more):
    id = f"c{next(NUMBERS)}"
    update(session, sessionUpdate="tool_call", toolCallId=id, title=title, kind=kind, status="pending", **more)
    return id


def end_call(session, id, text="", status="completed", **more):
    content = more.pop("content", [{"type": "content", "content": {"type": "text", "text": text}}])
    update(session, sessionUpdate="tool_call_update", toolCallId=id, status=status, content=content, **more)


def path_of(session):
    return os.path.join(HOME, f"{session}.json")


def recall(session):
    with open(path_of(session)) as file:
        return json.load(file)


def remember(session, prompts):
    with open(path_of(session), "w") as file:
        json.dump(prompts, file)


def permit(session, id, **more):
    options = [
        {"optionId": "yes", "name": "Allow", "kind": "allow_once"},
        {"optionId": "ever", "name": "Always", "kind": "allow_always"},
        {"optionId": "no", "name": "No", "kind": "reject_once"},
    ]
    answer = ask("session/request_permission", sessionId=session, toolCall={"toolCallId": id, **more}, options=options)
    return answer["outcome"].get("optionId", answer["outcome"]["outcome"])


def edit(session, cwd, name, text):
    path = os.path.join(cwd, name)
    old = None
    if os.path.exists(path):
        with open(path) as file:
            old = file.read()
    diff = {"type": "diff", "path": path, "oldText": old, "newText": text}
    given = {"file_path": path, "content": text}
    id = start_call(session, f"Write {name}", "edit", content=[diff], rawInput=given, locations=[{"path": path}])
    if permit(session, id, title=f"Write {name}", kind="edit", content=[diff]) != "yes":
        end_call(session, id, "refused", "failed")
        say(session, "refused. ")
        return
    with open(path, "w") as file:
        file.write(text)
    end_call(session, id, content=[diff])


def terminal(session, cwd, command):
    id = start_call(session, command, "execute", rawInput={"command": command})
    try:
        made = ask("terminal/create", sessionId=session, command="bash", args=["-c", command], cwd=cwd)["terminalId"]
        status = ask("terminal/wait_for_exit", sessionId=session, terminalId=made)
        output = ask("terminal/output", sessionId=session, terminalId=made)["output"]
        ask("terminal/release", sessionId=session, terminalId=made)
    except RuntimeError as error:
        end_call(session, id, str(error), "failed")
        say(session, f"[{error}]")
        return
    end_call(session, id, output)
    say(session, f"[{status.get('exitCode')}: {output.strip()}]")


def hands(name, arguments):
    server = SERVERS["alipes"]
    child = subprocess.Popen([server["command"], *server["args"]], stdin=subprocess.PIPE, stdout=subprocess.PIPE)

    def rpc(number, method, params):
        line = json.dumps({"jsonrpc": "2.0", "id": number, "method": method, "params": params})
        child.stdin.write(line.encode() + b"\n")
        child.stdin.flush()
        return json.loads(child.stdout.readline())

    rpc(
        1,
        "initialize",
        {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "t", "version": "0"}},
    )
    if name == "list":
        found = ",".join(sorted(each["name"] for each in rpc(2, "tools/list", {})["result"]["tools"]))
    else:
        answer = rpc(3, "tools/call", {"name": name, "arguments": arguments})
        found = answer["result"]["content"][0]["text"] if "result" in answer else answer["error"]["message"]
    child.stdin.close()
    child.wait()
    return found


def obey(session, cwd, line):  # noqa: C901
    order, _, rest = line.partition(" ")
    if order == "say":
        say(session, rest)
    elif order == "think":
        update(session, sessionUpdate="agent_thought_chunk", content={"type": "text", "text": rest})
    elif order == "edit":
        name, _, text = rest.partition(" ")
        edit(session, cwd, name, text + "\n")
    elif order in ("write", "both"):  # by us; also by itself
        name, _, text = rest.partition(" ")
        if order == "both":
            with open(os.path.join(cwd, name), "w") as file:
                file.write(text)
        try:
            ask("fs/write_text_file", sessionId=session, path=os.path.join(cwd, name), content=text)
            say(session, "written. ")
        except RuntimeError as error:
            say(session, f"[{error}]")
    elif order == "read":
        try:
            say(session, ask("fs/read_text_file", sessionId=session, path=os.path.join(cwd, rest))["content"])
        except RuntimeError as error:
            say(session, f"[{error}]")
    elif order == "run":
        terminal(session, cwd, rest)
    elif order == "plan":
        entries = [{"content": each, "priority": "medium", "status": "pending"} for each in rest.split(",")]
        entries[0]["status"] = "in_progress"
        update(session, sessionUpdate="plan", entries=entries)
    elif order == "hands":
        name, _, arguments = rest.partition(" ")
        say(session, f"[{hands(name, json.loads(arguments or '{}'))}]")
    elif order == "open":
        try:
            with open(rest) as file:
                say(session, f"[{file.read()[:200]}]")
        except OSError as error:
            say(session, f"[{type(error).__name__}]")
    elif order == "plant":
        path, _, text = rest.partition(" ")
        try:
            with open(os.path.join(HOME, path), "w") as file:
                file.write(text)
            say(session, "[planted]")
        except OSError as error:
            say(session, f"[{type(error).__name__}]")
    elif order == "environment":
        say(session, " ".join(sorted(os.environ)))
    elif order == "history":
        say(session, json.dumps(recall(session)))
    elif order == "connect":
        host, _, port = rest.partition(":")
        try:
            socket.create_connection((host, int(port)), timeout=5).close()
            say(session, "[connected]")
        except OSError as error:
            say(session, f"[{type(error).__name__}]")
    elif order == "child":  # a command of its own
        id = start_call(session, "sleep", "execute", rawInput={"command": f"sleep {rest}"})
        child = subprocess.Popen(["sleep", rest])
        child.wait()
        end_call(session, id, f"{child.returncode}")
    elif order == "wait":
        CANCELLED.wait()
    elif order == "hang":
        time.sleep(3600)
    elif order == "die":
        path = os.path.join(cwd, "half.txt")
        start_call(session, "Write half.txt", "edit", rawInput={"file_path": path}, locations=[{"path": path}])
        with open(path, "w") as file:
            file.write("half")
        time.sleep(0.05)
        os._exit(7)
    elif order == "die-once":
        mark = os.path.join(HOME, "died")
        if not os.path.exists(mark):
            open(mark, "w").close()
            os._exit(7)
    elif order == "flood":
        for _ in range(int(rest)):
            say(session, "x" * 5000)
    elif order == "flood-files":
        body = "y" * 4_000_000
        for n in range(int(rest)):
            start_call(session, f"Write {n}", "edit", content=[{"type": "diff", "path": f"/w/{n}", "newText": body}])
    elif order == "flood-requests":
        for n in range(int(rest)):
            send({"id": f"r{n}", "method": "terminal/output", "params": {"sessionId": session, "terminalId": "t"}})
            permission = {"sessionId": session, "toolCall": {"toolCallId": f"p{n}"}, "options": []}
            send({"id": f"p{n}", "method": "session/request_permission", "params": permission})
        CANCELLED.wait()
    elif order == "odd":  # values that are JSON, and that nobody expects
        start_call(session, "odd", "other", rawInput={"big": 10**30, "deep": nest(300), "none": float("nan")})
        end_call(session, start_call(session, "files", "read", locations=[{"path": f"/f{n}"} for n in range(5000)]))
        end_call(session, start_call(session, "\x1b[31mred\x00\ud800", "execute", rawInput={"command": "\ud800"}))
        entries = [{"content": f"\ud800 {n}", "priority": "low", "status": "pending"} for n in range(3000)]
        update(session, sessionUpdate="plan", entries=entries)
        update(session, sessionUpdate="agent_thought_chunk", content={"type": "text", "text": "\ud800\x00"})
        say(session, "\ud800\x00odd")
    elif order == "messages":
        for text, n in (("one", 1), (" and", 1), ("two", 2)):
            update(
                session, sessionUpdate="agent_message_chunk", content={"type": "text", "text": text}, messageId=f"m{n}"
            )
    elif order == "shell":  # asks about a command, as different programs do
        how, _, command = rest.partition(" ")
        known = {} if how in ("later", "title") else {"cwd": cwd}
        id = f"c{next(NUMBERS)}" if how == "title" else start_call(session, "Shell", "execute", rawInput=known)
        if how == "update":
            time.sleep(0.05)
            more = {"title": command, "kind": "execute", "rawInput": {"command": command}}
            update(session, sessionUpdate="tool_call_update", toolCallId=id, status="in_progress", **more)
        if how == "title":
            answer = permit(session, id, title=command, kind="execute")
        elif how == "other":
            answer = permit(session, id, title="x", kind="other", rawInput={"command": command, "patterns": ["*"]})
        else:
            answer = permit(session, id, title="x", kind="execute", rawInput={"command": command})
        if how != "drop":
            end_call(session, id, answer)
    elif order == "end":  # its prompt, with this instead of an answer
        send({"id": WAITING["prompt"], **json.loads(rest)})
        CANCELLED.wait()
    elif order == "answers":  # to nobody, twice, and in a form that there is not
        send({"id": 987654, "result": {}})
        send({"id": "x", "error": "boom"})
        send({"id": None, "result": {}})
    elif order == "mute":
        sys.stdout.flush()
        os.close(1)
        time.sleep(3600)
    elif order == "unknown":
        try:
            ask("session/order_pizza", sessionId=session)
        except RuntimeError as error:
            say(session, f"[{error}]")
        send({"method": "session/update", "params": {"sessionId": session, "update": {"sessionUpdate": "dance"}}})
        send({"method": "session/update", "params": "nonsense"})
    elif order == "late":
        CANCELLED.wait()
        say(session, "late words")
        with contextlib.suppress(RuntimeError):
            ask("fs/write_text_file", sessionId=session, path=os.path.join(cwd, "late.txt"), content="late")


def nest(depth):
    return [nest(depth - 1)] if depth else []


def prompt(params, id):
    session = params["sessionId"]
    WAITING["prompt"] = id
    if session in RUNNING:
        send({"id": id, "error": {"code": -32603, "message": "two prompts at once"}})
        return
    RUNNING.add(session)
    text = "\n".join(block.get("text", "") for block in params["prompt"])
    remember(session, [*recall(session), text])
    CANCELLED.clear()
    for line in text.splitlines():
        if CANCELLED.is_set():
            break
        obey(session, CWD[session], line)
    usage = {"totalTokens": 12, "inputTokens": 10, "outputTokens": 2}
    update(
        session,
        sessionUpdate="usage_update",
        used=100,
        size=1000,
        cost={"amount": 0.25 * len(recall(session)), "currency": "USD"},
    )
    RUNNING.discard(session)
    used = {"usage": usage}
    if "usage=texts" in WORDS:
        meta, used = {"usage": {"inputTokens": 5, "outputTokens": 1, "thoughtTokens": 1, "cachedReadTokens": 2}}, {}
        for _ in range(2):
            update(session, sessionUpdate="agent_message_chunk", content={"type": "text", "text": ""}, _meta=meta)
    if "usage=quota" in WORDS:
        used = {"_meta": {"quota": {"token_count": {"input_tokens": 10, "output_tokens": 4}}}}
    if not (CANCELLED.is_set() and "deaf" in WORDS):
        send({"id": id, "result": {"stopReason": "cancelled" if CANCELLED.is_set() else "end_turn", **used}})


RUNNING, CWD = set(), {}
METHODS = [{"id": "codex-api-key", "name": "A key"}]
MODES = {
    "currentModeId": "ask",
    "availableModes": [{"id": "ask", "name": "Ask"}, {"id": "plan", "name": "Plan"}, {"id": "yolo", "name": "Yolo"}],
}


def handle(message):  # noqa: C901
    method, params, id = message.get("method"), message.get("params") or {}, message.get("id")
    if method is None:
        done = WAITING.get(id)
        if isinstance(done, threading.Event):
            WAITING[id] = message
            done.set()
        return
    if method == "initialize":
        version = int(next((word[8:] for word in WORDS if word.startswith("version=")), "1"))
        if "silent" in WORDS:
            return
        able = {"loadSession": "noload" not in WORDS, "promptCapabilities": {"image": True}}
        send({"id": id, "result": {"protocolVersion": version, "agentCapabilities": able, "authMethods": METHODS}})
    elif method == "authenticate":
        send({"id": id, "result": {}})
    elif method in ("session/new", "session/load"):
        if "auth" in WORDS or ("auth-load" in WORDS and method == "session/load"):
            send({"id": id, "error": {"code": -32000, "message": "Authentication required"}})
            return
        session = params.get("sessionId") or f"s{os.urandom(4).hex()}"
        CWD[session] = params["cwd"]
        SERVERS.update({each["name"]: each for each in params["mcpServers"]})
        if method == "session/new":
            remember(session, [])
        elif not os.path.exists(path_of(session)):
            send({"id": id, "error": {"code": -32002, "message": "no such session"}})
            return
        else:
            say(session, "replayed words")
        send({"id": id, "result": {"sessionId": session, "modes": MODES}})
        many = 100 if "wordy" in WORDS else 1
        commands = [{"name": "hello", "description": "say hello" * many, "input": {"hint": "whom" * many}}]
        update(session, sessionUpdate="available_commands_update", availableCommands=commands)
    elif method == "session/set_mode":
        MODES["currentModeId"] = params["modeId"]
        send({"id": id, "result": {}})
    elif method == "session/prompt":
        threading.Thread(target=prompt, args=(params, id), daemon=True).start()
    elif method == "session/cancel":
        if "deaf" not in WORDS:
            CANCELLED.set()
    elif id is not None:
        send({"id": id, "error": {"code": -32601, "message": "unknown method"}})


if "noise" in WORDS:
    print('Welcome!\n{not json\n[1, 2]\n"text"\n{"id": [1]}\n{"method": 7}', flush=True)
if "babble" in WORDS:
    while True:
        print("blah", flush=True)
if "dies" in WORDS:
    sys.stderr.write("cannot find my settings\n")
    sys.exit(3)
for line in sys.stdin:
    handle(json.loads(line))
