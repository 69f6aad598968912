"""Variables that make programs in the sandbox use the egress proxy.

Most programs read HTTP_PROXY, HTTPS_PROXY and ALL_PROXY: curl, wget, git, pip, uv, npm, cargo, go, apt, and the HTTP
libraries of Python, Go, Rust, Ruby and PHP. Not those of Java, whose variable would print a line for every start:
give `-Dhttps.proxyHost=127.0.0.1 -Dhttps.proxyPort=PORT` to Java itself. `git://` addresses, FTP and UDP do not work.
"""

from shlex import join, quote

NO_PROXY = "localhost,127.0.0.1,::1"


_ONLY_WHAT_WAS_ASKED = {
    "npm_config_update_notifier": "false",
    "NO_UPDATE_NOTIFIER": "1",
    "PIP_DISABLE_PIP_VERSION_CHECK": "1",
    "DO_NOT_TRACK": "1",
    "DOTNET_CLI_TELEMETRY_OPTOUT": "1",
    "NEXT_TELEMETRY_DISABLED": "1",
}
"""Programs that look for newer versions or report their use would ask for a connection that nobody wanted."""


def proxy_environment(port: int, *, ssh_proxy: str = "") -> dict[str, str]:
    """Variables for commands whose egress proxy listens on 127.0.0.1:`port`.

    `ssh_proxy`: the ProxyCommand for git over ssh, from `ssh_proxy_command`; empty: git over ssh is not set up.
    """
    url = f"http://127.0.0.1:{port}"
    # ALL_PROXY is an http:// address too: Python needs another package for SOCKS.
    pairs = {"HTTP_PROXY": url, "HTTPS_PROXY": url, "ALL_PROXY": url, "NO_PROXY": NO_PROXY}
    variables = pairs | {name.lower(): value for name, value in pairs.items()}
    variables |= {
        "NODE_USE_ENV_PROXY": "1",  # fetch() of Node.js
        "YARN_HTTP_PROXY": url,
        "YARN_HTTPS_PROXY": url,
        "RSYNC_PROXY": f"127.0.0.1:{port}",
        "GRPC_PROXY": url,
        **_ONLY_WHAT_WAS_ASKED,
    }
    if ssh_proxy:
        variables["GIT_SSH_COMMAND"] = f"ssh -o {quote('ProxyCommand=' + ssh_proxy)}"
    return variables


def ssh_proxy_command(port: int, *, script: str, python: str = "python3") -> str:
    """The ProxyCommand of ssh, also for an ssh_config file. `script`: where commands see connect.py."""
    return f"{join((python, '-I', '-S', script, str(port)))} %h %p"
