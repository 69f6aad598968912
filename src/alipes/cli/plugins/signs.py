"""Which words in a plugin's code are a sign of what. Tables only."""

from collections.abc import Mapping

MODULES: Mapping[str, tuple[str, ...]] = {
    "network": (
        *(
            "socket",
            "socketserver",
            "ssl",
            "http",
            "urllib.request",
            "ftplib",
            "smtplib",
            "imaplib",
            "poplib",
        ),
        *("telnetlib", "nntplib", "xmlrpc", "wsgiref", "requests", "httpx", "httpx2", "httpcore", "aiohttp"),
        *("urllib3", "websockets", "websocket", "paramiko", "asyncssh", "grpc", "zmq", "pycurl", "boto3"),
        *("openai", "anthropic", "telegram", "discord", "slack_sdk", "nio", "redis", "pymongo", "psycopg"),
        *("fastapi", "flask", "uvicorn", "starlette", "tornado", "twisted", "paho", "selenium", "playwright"),
    ),
    "processes": ("subprocess", "multiprocessing", "pty", "pexpect", "plumbum", "sh"),
    "native code": ("ctypes", "cffi"),
    "made code": ("pickle", "marshal", "dill", "cloudpickle", "runpy", "code"),
}
"""What importing one of these, or something in it, is a sign of."""

NAMES: Mapping[str, tuple[str, ...]] = {
    "network": ("asyncio.open_connection", "asyncio.start_server", "ctx.clients", "context.clients"),
    "processes": (
        *("os.system", "os.popen", "os.fork", "os.forkpty", "os.kill", "os.killpg", "os.posix_spawn"),
        *("os.execv", "os.execve", "os.execvp", "os.execvpe", "os.execl", "os.execlp", "os.startfile"),
        *("os.spawnl", "os.spawnlp", "os.spawnv", "os.spawnve", "os.spawnvp", "os.posix_spawnp"),
        *("asyncio.create_subprocess_exec", "asyncio.create_subprocess_shell"),
    ),
    "made code": ("eval", "exec", "compile", "__import__"),
}

POWERS = {
    "network": "network",
    "processes": "processes",
    "native code": "native code",
    "made code": "code made as it runs",
    "environment": "whole environment",
}
"""The kinds, in the order they are shown, and how they are called there."""

REGISTERS: Mapping[str, str] = {
    "register_tool": "tools",
    "register_hook": "hooks",
    "register_command": "commands",
    "register_cli_command": "programs",
    "register_skill": "skills",
}
"""Methods of the Hermes `ctx`; any other `register_x` provides an x."""

OFFERS: Mapping[str, str] = {
    "tool": "tools",
    "hook": "hooks",
    "command": "commands",
    "cli": "programs",
    "skill": "skills",
}
"""Methods of our own `ctx`."""

MARKS = ("alipes.plugin.tool", "alipes.hooks.toolmaking.tool")
"""Decorators that make a function a tool."""

VARIABLES = (
    *("os.environ.get", "os.environ.pop", "os.environ.setdefault", "os.getenv"),
    *("get_env_value", "get_secret"),
)
"""Functions whose first argument is the name of a variable."""

COMPILED = (".so", ".pyd", ".dll", ".dylib", ".pyc", ".exe")
