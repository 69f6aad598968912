"""Process of the embedded model: serves one GGUF on loopback until its parent exits.

Run as a script; imports nothing else of alipes. Reads one line of JSON, writes one (`url` or
`error`), and exits when its input is closed.
"""

import ctypes
import importlib
import json
import os
import signal
import sys
from typing import Any

_PR_SET_PDEATHSIG = 1


def main() -> None:
    answers = os.dup(1)
    os.dup2(2, 1)  # output of the library must not mix with our answer
    job = json.loads(sys.stdin.buffer.readline() or b"{}")
    if not job:
        return
    _exit_with_parent()
    try:
        server = _serve(job)
        answer = {"url": server.listening_address}
    except (ImportError, OSError, RuntimeError, ValueError, TypeError, AttributeError) as error:
        answer = {"error": f"{type(error).__name__}: {error}"}
    os.write(answers, json.dumps(answer).encode() + b"\n")
    if "url" in answer:
        sys.stdin.buffer.read()
    os._exit(0 if "url" in answer else 1)  # its destructor would wait for a running request


def _exit_with_parent() -> None:
    """Closing our input ends the process too, but not while the library is loading."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


def _serve(job: dict[str, Any]) -> Any:
    sys.path.append(job["site"])
    library = importlib.import_module("xllamacpp")
    params = library.CommonParams()
    params.model.path = job["gguf"]
    params.model_alias = {job["model"]}
    params.n_ctx = job["context"]
    params.cpuparams.n_threads = params.cpuparams_batch.n_threads = job["threads"]
    params.hostnames, params.port = ["127.0.0.1"], 0
    params.api_keys = [job["key"]]
    params.cors_origins, params.cors_origins_explicit, params.cors_credentials = ("http://127.0.0.1", True, False)
    params.ui = params.endpoint_slots = params.warmup = False
    params.offline = params.use_jinja = True
    params.cache_ram_mib = 512  # the default is 8 GB
    params.verbosity = 2
    if job["template"]:
        params.chat_template = job["template"]
        params.sampling.temp, params.sampling.top_p = 0.2, 0.9
        params.fit_params = False
    return library.Server(params)


if __name__ == "__main__":
    main()
