"""Build the image and run it, then compose.yaml: a message in, an answer out, a worker killed, an answer out.

    tools/container.py [--pull] [--folder FOLDER]

Needs root, podman, runc and podman-compose (PyPI). The images that ours is based on are built from Debian's packages by
debootstrap; with --pull they are fetched. Images are kept in FOLDER; without it, everything is removed at the end.
"""

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import textwrap
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
DEBIAN = "localhost/debian"
IMAGE = "localhost/alipes"
SUITE = ("bookworm", "http://deb.debian.org/debian")
CERTIFICATES = "/etc/ssl/certs"
NETWORK = "alipes-check"
PORT = 8742
KEY = "key-of-the-check-0123456789"
ADDRESSES = {
    name: f"10.213.7.{number}"
    for number, name in enumerate(("postgres", "worker1", "worker2", "worker3", "balancer", "model"), 20)
}
SECONDS = 300
ENGINE = """\
[engine]
runtime = "runc"
cgroup_manager = "cgroupfs"
events_logger = "file"
[containers]
default_ulimits = ["nofile=1024:1024", "nproc=1024:1024"]
[network]
network_config_dir = "{folder}/networks"
"""
STORAGE = """\
[storage]
driver = "overlay"
graphroot = "{folder}/images"
runroot = "{folder}/run"
"""
BRIDGE = {
    "cniVersion": "0.4.0",
    "name": NETWORK,
    "plugins": [
        {
            "type": "bridge",
            "bridge": "alipes-check",
            "isGateway": True,
            "ipam": {"type": "host-local", "ranges": [[{"subnet": "10.213.7.0/24"}]]},
        }
    ],
}
BASES = {
    "docker.io/library/python:3.11-slim": "RUN ln -s python3 /usr/bin/python",
    "docker.io/library/caddy:2": """\
        RUN apt-get update && apt-get install --yes --no-install-recommends caddy
        """,
    "docker.io/library/postgres:17": """\
        RUN apt-get update && apt-get install --yes --no-install-recommends postgresql \\
            && install --directory --owner postgres --mode 0700 /var/lib/postgresql/data
        COPY start /usr/local/bin/start
        ENV PGDATA=/var/lib/postgresql/data
        USER postgres
        CMD ["sh", "/usr/local/bin/start"]
        """,
}
POSTGRES_START = """\
set -e
PATH=$(echo /usr/lib/postgresql/*/bin):$PATH
if [ ! -s "$PGDATA/PG_VERSION" ]; then
    printf %s "$POSTGRES_PASSWORD" > /tmp/password
    initdb --username="$POSTGRES_USER" --pwfile=/tmp/password --auth-host=scram-sha-256 --encoding=UTF8 --locale=C.UTF-8
    echo "host all all all scram-sha-256" >> "$PGDATA/pg_hba.conf"
    pg_ctl --wait --options="-c listen_addresses=" start
    psql --username="$POSTGRES_USER" --dbname=postgres --command="CREATE DATABASE \\"$POSTGRES_DB\\""
    pg_ctl --wait stop
fi
exec postgres -c listen_addresses='*'
"""
MODEL = '''
import http.server, json, time

class Model(http.server.BaseHTTPRequestHandler):
    """Answers with the last message of the person, late if that says so, and prints who asked."""

    def do_POST(self):
        body = json.loads(self.rfile.read(int(self.headers["content-length"])))
        said = [str(each["content"]) for each in body["messages"] if each["role"] == "user"]
        print(self.client_address[0], json.dumps(said[-1]), flush=True)
        if "slow" in said[-1]:
            time.sleep(10)
        self.send_response(200)
        self.send_header("content-type", "text/event-stream")
        self.end_headers()
        for choice in {"delta": {"content": "answer " + said[-1]}}, {"delta": {}, "finish_reason": "stop"}:
            self.wfile.write(b"data: " + json.dumps({"choices": [{"index": 0, **choice}]}).encode() + b"\\n\\n")
        self.wfile.write(b"data: [DONE]\\n\\n")

http.server.ThreadingHTTPServer(("0.0.0.0", 9100), Model).serve_forever()
'''
SETTINGS = """\
model = "test/scripted"
[providers.test]
api = "openai-chat"
base_url = "http://model:9100/v1"
"""


class Podman:
    """Podman with its own settings and images in a folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.environment = {
            **{name: value for name, value in os.environ.items() if not name.startswith(("ALIPES_", "PIP_"))},
            "CONTAINERS_CONF": str(folder / "containers.conf"),
            "CONTAINERS_STORAGE_CONF": str(folder / "storage.conf"),
        }
        (folder / "networks").mkdir(exist_ok=True)
        (folder / "networks" / f"{NETWORK}.conflist").write_text(json.dumps(BRIDGE))
        (folder / "containers.conf").write_text(ENGINE.format(folder=folder))
        (folder / "storage.conf").write_text(STORAGE.format(folder=folder))

    def run(self, *words: str | Path, fails: bool = False, cwd: Path = ROOT) -> str:
        """Its output. `fails`: it may end with an error."""
        argv = ["podman", *map(str, words)]
        done = subprocess.run(argv, env=self.environment, capture_output=True, text=True, cwd=cwd, check=False)
        if done.returncode and not fails:
            sys.exit(f"podman {words[0]} failed:\n{done.stdout[-2000:]}\n{done.stderr[-2000:]}")
        return done.stdout

    def has(self, image: str) -> bool:
        return bool(self.run("images", "--quiet", image))

    def build(self, image: str, context: Path) -> None:
        words = ["build", "--pull=never", "--format", "docker", "--network", "host", "--tag", image]
        if Path(CERTIFICATES, "ca-certificates.crt").exists():  # those that this machine trusts
            pip = self.folder / "pip.conf"
            pip.write_text(f"[global]\ncert = {CERTIFICATES}/ca-certificates.crt\n")
            words += ["--volume", f"{CERTIFICATES}:{CERTIFICATES}:ro", "--volume", f"{pip}:/etc/pip.conf:ro"]
        self.run(*words, context)


def say(text: str) -> None:
    print(f"[{time.monotonic() - STARTED:4.0f} s] {text}", flush=True)


def check(fact: object, text: str) -> None:
    if not fact:
        sys.exit(f"not true: {text}")
    say(text)


def wait(fact: Callable[[], Any], text: str, seconds: float = SECONDS) -> Any:
    """The first true result."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        try:
            if found := fact():
                return found
        except OSError:
            pass
        time.sleep(0.1)
    return sys.exit(f"did not happen within {seconds:.0f} s: {text}")


def make_bases(podman: Podman, *, pull: bool) -> None:
    missing = [image for image in BASES if not podman.has(image)]
    if pull:
        for image in missing:
            podman.run("pull", image)
        return
    if missing and not podman.has(DEBIAN):
        say("making a root file system of Debian packages")
        root = podman.folder / "debian"
        packages = "ca-certificates,python3,python3-venv,python3-pip"
        words = ["debootstrap", "--variant=minbase", f"--include={packages}", SUITE[0], str(root), SUITE[1]]
        subprocess.run(words, check=True, stdout=subprocess.DEVNULL)
        archive = podman.folder / "debian.tar"
        subprocess.run(["tar", "-C", root, "-cf", archive, "."], check=True)
        podman.run("import", archive, DEBIAN)
        archive.unlink()
        shutil.rmtree(root)
    for image in missing:
        say(f"building {image} of it")
        context = podman.folder / "base"
        context.mkdir(exist_ok=True)
        (context / "start").write_text(POSTGRES_START)
        (context / "Containerfile").write_text(f"FROM {DEBIAN}\n{textwrap.dedent(BASES[image])}\n")
        podman.build(image, context)


def check_image(podman: Podman) -> None:
    """One container as docs/operations.md starts it."""
    words = ("--read-only", "--tmpfs", "/tmp", "--env", "ALIPES_MODEL=embedded")
    podman.run("run", "--detach", "--name", "one", *words, IMAGE)
    try:
        wait(lambda: "/health" in podman.run("logs", "one"), "alipes serve is ready")
        inside = ("exec", "one")
        check(podman.run(*inside, "id", "-u").strip() == "10001", "it does not run as root")
        for path in "/x", "/app/x", "/home/alipes/x":
            check(not podman.run(*inside, "sh", "-c", f"touch {path} && echo yes", fails=True), f"{path} is read-only")
        podman.run("healthcheck", "run", "one")
        state = podman.run("inspect", "one", "--format", "{{.State.Health.Status}}").strip()
        check(state == "healthy", "the health check says healthy")
        answer = podman.run(*inside, "alipes", "ask", "Say hello.").strip()
        check(answer, f"the embedded model answers: {answer[:60]!r}")
        podman.run("stop", "--time", "40", "one")
        status = podman.run("inspect", "one", "--format", "{{.State.ExitCode}}").strip()
        check(status == "0", "it stops with status 0 after SIGTERM")
    finally:
        podman.run("rm", "--force", "--volumes", "one", fails=True)


def write_project(folder: Path) -> None:
    """compose.yaml as it is, with a network of fixed addresses and a model."""
    folder.mkdir(exist_ok=True)
    for name in "compose.yaml", "cluster.Caddyfile":
        shutil.copyfile(ROOT / name, folder / name)
    settings = folder / "config.toml"
    settings.write_text(SETTINGS)
    settings.chmod(0o644)
    (folder / "model.py").write_text(MODEL)
    (folder / "cluster.env").write_text(
        f"POSTGRES_PASSWORD=secret\nALIPES_STORE_PASSWORD=secret\nALIPES_API_KEY={KEY}\nALIPES_MODEL=test/scripted\n"
    )
    hosts = [f"{name}:{address}" for name, address in ADDRESSES.items()]
    services: dict[str, Any] = {
        name: {"networks": {"default": {"ipv4_address": address}}, "extra_hosts": hosts}
        for name, address in ADDRESSES.items()
    }
    for name in "worker1", "worker2", "worker3":
        services[name]["volumes"] = ["./config.toml:/data/config.toml:ro"]
    services["model"] |= {"image": "alipes", "command": ["python", "/model.py"], "volumes": ["./model.py:/model.py:ro"]}
    more = {"services": services, "networks": {"default": {"external": True, "name": NETWORK}}}
    (folder / "check.yaml").write_text(json.dumps(more))


@contextmanager
def compose(podman: Podman, folder: Path) -> Iterator[None]:
    words = [*find_compose(), "-p", "check", "-f", "compose.yaml", "-f", "check.yaml"]
    over = threading.Event()

    def check_health() -> None:  # what a timer of systemd does elsewhere
        while not over.wait(1):
            podman.run("healthcheck", "run", "check_postgres_1", fails=True)

    beside = threading.Thread(target=check_health)
    beside.start()
    output = folder / "compose.log"
    try:
        with output.open("w") as file:
            started = subprocess.run(
                [*words, "up", "-d", "--no-build"], cwd=folder, env=podman.environment, stdout=file, stderr=file
            )
        check(started.returncode == 0, f"compose.yaml is up ({output})")
        yield
    finally:
        over.set()
        beside.join()
        subprocess.run([*words, "down", "-v", "-t", "5"], cwd=folder, env=podman.environment, capture_output=True)
        subprocess.run(["ip", "link", "delete", NETWORK], capture_output=True, check=False)


def find_compose() -> list[str]:
    beside = Path(sys.executable).with_name("podman-compose")
    return [str(beside)] if beside.exists() else ["podman-compose"]


def ask_api(path: str, body: dict[str, Any] | None = None) -> Any:
    request = urllib.request.Request(
        f"http://{ADDRESSES['balancer']}:{PORT}{path}",
        None if body is None else json.dumps(body).encode(),
        {"authorization": f"Bearer {KEY}", "content-type": "application/json"},
    )
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    with opener.open(request, timeout=30) as answer:
        return json.loads(answer.read())


def check_cluster(podman: Podman) -> None:
    def is_answered(run: str) -> Any:
        found = ask_api(f"/v1/runs/{run}")
        return found if found["status"] not in ("queued", "running") else None

    def list_askers(text: str) -> list[str]:
        """The workers that gave this message to the model."""
        lines = [line.split(" ", 1) for line in podman.run("logs", "check_model_1").splitlines()]
        names = {address: name for name, address in ADDRESSES.items()}
        return [names[address] for address, said in lines if json.loads(said) == text]

    wait(lambda: ask_api("/ready"), "the balancer and a worker answer")
    say("the balancer and a worker answer")
    run = ask_api("/v1/runs", {"input": "first", "session": "one"})["id"]
    done = wait(lambda: is_answered(run), "the first message is answered")
    check(done["text"] == "answer first", f"a message is answered by {list_askers('first')[0]}")
    run = ask_api("/v1/runs", {"input": "slow", "session": "two"})["id"]
    (victim,) = wait(lambda: list_askers("slow"), "the second message reaches the model")
    podman.run("kill", "--signal", "KILL", f"check_{victim}_1")
    began = time.monotonic()
    say(f"{victim} is killed while it answers")
    wait(lambda: len(list_askers("slow")) > 1, "another worker takes the turn over")
    say(f"{list_askers('slow')[-1]} has taken the turn over after {time.monotonic() - began:.1f} s")
    done = wait(lambda: is_answered(run), "the second message is answered")
    check(done["text"] == "answer slow", "its message is answered, once")
    check(len(list_askers("slow")) == 2, "the model was asked again once")
    run = ask_api("/v1/runs", {"input": "third", "session": "two"})["id"]
    done = wait(lambda: is_answered(run), "the third message is answered")
    check(done["text"] == "answer third", f"the next message of the conversation: {list_askers('third')[0]}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pull", action="store_true")
    parser.add_argument("--folder", type=Path)
    args = parser.parse_args()
    # a short path: with a long one podman does not notice the end of a container
    folder = args.folder or Path(tempfile.mkdtemp(prefix="podman-"))
    folder.mkdir(exist_ok=True)
    podman = Podman(folder.absolute())
    try:
        make_bases(podman, pull=args.pull)
        say(f"building {IMAGE}")
        podman.build(IMAGE, ROOT)
        check_image(podman)
        write_project(folder / "project")
        with compose(podman, folder / "project"):
            check_cluster(podman)
    finally:
        if args.folder is None:
            podman.run("system", "reset", "--force", fails=True)
            shutil.rmtree(folder, ignore_errors=True)


STARTED = time.monotonic()
if __name__ == "__main__":
    main()
