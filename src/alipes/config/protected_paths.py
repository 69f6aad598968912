"""Places that hold secrets, and places whose files are run or trusted later: one list for tools, rules and sandbox.

An entry is a path or a glob relative to its folder; `*` stays inside one path segment. An entry that is a
folder includes everything below it.
"""

import re
from functools import cache

OTHER_AGENT_HOMES: tuple[str, ...] = (
    *(".claude", ".claude.json*", ".config/claude", ".config/Claude", ".codex", ".config/codex", ".cursor"),
    *(".config/Cursor", ".hermes", ".openclaw", ".clawdbot", ".moltbot", ".gemini", ".config/gemini", ".qwen", ".kimi"),
    *(".continue", ".aider*", ".config/goose", ".config/opencode", ".opencode", ".local/share/opencode", ".config/amp"),
    *(".amp", ".codeium", ".windsurf", ".config/github-copilot", ".copilot", ".cline", ".roo", ".factory", ".augment"),
    *(".config/crush", ".crush", ".config/mcp", ".mcp.json", ".mcp-auth", ".config/io.datasette.llm", ".cody", ".kiro"),
    *(".config/open-interpreter", ".nanobot", ".picoclaw", ".zeroclaw", ".letta", ".agents", ".config/aichat", ".pi"),
)
"""Homes of other agents: their credentials, and settings that they trust."""

SECRET_IN_HOME: tuple[str, ...] = (
    *(".ssh", ".gnupg", ".netrc", "_netrc", ".authinfo*", ".git-credentials", ".config/git/credentials", ".pgpass"),
    *(".my.cnf", ".mylogin.cnf", ".pypirc", ".npmrc", ".config/npm/npmrc", ".yarnrc.yml", ".config/pip/pip.conf"),
    *(".pip/pip.conf", ".gem/credentials", ".local/share/gem/credentials", ".cargo/credentials*", ".m2/settings*.xml"),
    *(".gradle/gradle.properties", ".composer/auth.json", ".config/composer/auth.json", ".nuget", ".config/NuGet"),
    *(".aws", ".config/gcloud", ".azure", ".kube", ".docker/config.json", ".config/containers/auth.json", ".oci"),
    *(".config/gh", ".config/glab-cli", ".config/hub", ".config/tea", ".vault-token", ".config/doctl", ".fly"),
    *(".terraform.d/credentials*", ".terraformrc", ".config/heroku", ".config/netlify", ".config/vercel", ".wrangler"),
    *(".local/share/com.vercel.cli", ".config/.wrangler", ".config/configstore", ".config/rclone", ".rclone.conf"),
    *(".s3cfg", ".boto", ".config/stripe", ".config/ngrok", ".ngrok2", ".cloudflared", ".databrickscfg", ".snowsql"),
    *(".snowflake", ".kaggle", ".cache/huggingface/token", ".huggingface", ".config/sops", ".config/age", ".age"),
    *(".password-store", ".local/share/gopass", ".config/op", ".op", ".1password", ".config/1Password", ".lastpass"),
    *(".config/Bitwarden*", ".config/rbw", ".local/share/rbw", ".local/share/keyrings", ".local/share/kwalletd"),
    *(".config/keepassxc", "*.kdbx", "Library/Keychains", "Library/Group Containers/*1password*", ".pki", ".electrum"),
    *(".bitcoin", ".ethereum", ".config/solana", ".local/share/signal-cli", ".config/Signal", ".thunderbird"),
    *(".mozilla", ".librewolf", ".waterfox", "snap/firefox", "snap/chromium", ".config/google-chrome*"),
    *(".config/chromium*", ".config/BraveSoftware", ".config/microsoft-edge*", ".config/vivaldi*", ".config/opera*"),
    *(".var/app/*firefox*", ".var/app/*hrom*", ".var/app/*rave*", ".var/app/*edge*", ".zen", ".config/mozilla"),
    *("Library/Application Support/Firefox", "Library/Application Support/Google/Chrome*", "Library/Cookies"),
    *("Library/Application Support/Chromium", "Library/Application Support/BraveSoftware", "Library/Safari"),
    *("Library/Application Support/Microsoft Edge*", "Library/Containers/com.apple.Safari"),
    *(".*_history", ".history", ".histfile", ".zhistory", ".node_repl_history", ".local/share/fish/fish_history"),
    *(".lesshst", ".viminfo", ".local/share/*/history*", ".Xauthority", ".ICEauthority", ".config/msmtp", ".msmtprc"),
    *(".fetchmailrc", ".config/neomutt", ".muttrc", ".config/weechat", ".irssi", ".env", ".env.*", ".envrc"),
    *(".config/syncthing", ".config/rustdesk", ".config/remmina", ".local/share/remmina", ".vnc", ".config/tailscale"),
    *OTHER_AGENT_HOMES,
)
"""Files and folders in the home that hold credentials, cookies or what a person typed."""

PUBLIC_IN_HOME: tuple[str, ...] = (
    *(".ssh/*.pub", ".ssh/known_hosts*", ".ssh/config", ".ssh/config.d", ".docker/contexts", ".aws/cli/alias"),
    *(".claude/CLAUDE.md", ".codex/AGENTS.md", ".gemini/GEMINI.md", ".agents/skills"),
)
"""Exceptions of SECRET_IN_HOME."""

SECRET_IN_PROJECT: tuple[str, ...] = (".env", ".env.*", "*.env", ".netrc", ".pypirc", ".git-credentials", "*.kdbx")
"""Files of a project, at any depth, that hold credentials."""

PUBLIC_IN_PROJECT: tuple[str, ...] = (
    *("*.example", "*.sample", "*.template", "*.dist", "*.tpl", "example.env", "sample.env", "template.env"),
    *(".env.defaults", ".env.schema"),
)
"""Exceptions of SECRET_IN_PROJECT."""

SECRET_IN_SYSTEM: tuple[str, ...] = (
    *("/etc/shadow*", "/etc/gshadow*", "/etc/sudoers*", "/etc/ssh/ssh_host_*_key", "/etc/security/opasswd"),
    *("/etc/ssl/private", "/run/secrets", "/var/run/secrets", "/run/credentials", "/etc/kubernetes", "/root/.ssh"),
    *("/etc/wireguard", "/etc/openvpn", "/etc/NetworkManager/system-connections", "/var/lib/docker/volumes"),
    *("/etc/krb5.keytab", "/etc/rancher", "/var/lib/kubelet/pki", "/run/user/*/keyring", "/run/user/*/gnupg"),
)
"""Absolute paths that hold credentials of the machine."""

STARTUP_IN_HOME: tuple[str, ...] = (
    *(".bashrc*", ".bash_profile", ".bash_login", ".bash_logout", ".bash_aliases", ".bash_completion", ".config/bash"),
    *(".profile", ".zshrc*", ".zshenv", ".zprofile", ".zlogin", ".zlogout", ".zsh", ".oh-my-zsh", ".config/zsh"),
    *(".kshrc", ".mkshrc", ".shrc", ".cshrc", ".tcshrc", ".login", ".logout", ".config/fish", ".config/nushell"),
    *(".config/elvish", ".xonshrc", ".config/xonsh", ".config/powershell", ".inputrc", ".hushlogin", ".p10k.zsh"),
    *(".config/starship.toml", ".pam_environment", ".xprofile", ".xinitrc", ".xsession*", ".Xsession", ".xserverrc"),
    *(".config/environment.d", ".config/autostart*", ".config/systemd", ".local/share/systemd", ".config/upstart"),
    *(".config/plasma-workspace", ".kde*", ".config/i3", ".i3", ".config/sway", ".config/hypr", ".config/awesome"),
    *(".config/bspwm", ".config/sxhkd", ".config/openbox", ".fluxbox", ".xmonad", ".config/dconf"),
    *("Library/LaunchAgents", "Library/LaunchDaemons", ".hammerspoon", ".config/karabiner", ".config/cron*"),
    *("bin", ".bin", ".local/bin", ".local/share/applications", ".local/share/dbus-1", ".config/mimeapps.list"),
    *(".ssh", ".gnupg", ".gitconfig*", ".config/git", ".git-templates", ".git_template", ".githooks", ".hgrc"),
    *(".config/hg", ".subversion", ".vimrc", ".vim", ".gvimrc", ".exrc", ".config/nvim", ".config/vim"),
    *(".local/share/nvim", ".emacs*", ".config/emacs", ".doom.d", ".config/doom", ".spacemacs*", ".nanorc"),
    *(".config/nano", ".config/helix", ".config/kak", ".config/micro", ".config/zed", ".config/sublime-text*"),
    *(".vscode*", ".config/Code*", ".config/VSCodium", ".cursor", ".config/JetBrains", ".ideavimrc"),
    *(".local/share/code-server", ".tmux*", ".config/tmux", ".screenrc", ".config/kitty", ".config/alacritty"),
    *(".alacritty*", ".config/wezterm", ".wezterm.lua", ".config/ghostty", ".config/terminator", ".gdbinit"),
    *(".gdbearlyinit", ".config/gdb", ".lldbinit", ".pdbrc*", ".pythonrc*", ".pythonstartup*", ".ipython", ".jupyter"),
    *(".local/lib/python*", "Library/Python", ".irbrc", ".pryrc", ".Rprofile", ".Renviron", ".Rprofile.site"),
    *(".perldb", ".ghci", ".sqliterc", ".duckdbrc", ".psqlrc", ".my.cnf", ".mongorc.js", ".julia/config"),
    *(".config/pip", ".pip", ".config/uv", ".pydistutils.cfg", ".condarc", ".conda/condarc", ".config/conda"),
    *(
        ".npmrc",
        ".pypirc",
        ".Xresources",
        ".Xdefaults",
        ".config/npm",
        ".yarnrc*",
        ".config/yarn",
        ".config/pnpm",
        ".pnpmfile.cjs",
        ".bunfig.toml",
    ),
    *(".node_modules", ".node_libraries", ".npm-global/bin", ".bun/bin", ".deno/bin", ".volta", ".nvm"),
    *(".cargo/config*", ".cargo/bin", ".cargo/env", ".rustup", ".config/go", "go/bin", ".gradle", ".m2", ".sbt"),
    *(".mavenrc", ".ant", ".composer", ".config/composer", ".gemrc", ".bundle", ".config/gem", ".rbenv", ".pyenv"),
    *(".asdf", ".asdfrc", ".tool-versions", ".config/mise", ".mise*", ".config/direnv", ".direnvrc", ".envrc"),
    *(".aws", ".config/gcloud", ".azure", ".kube", ".docker", ".config/containers", ".terraformrc", ".terraform.d"),
    *(".ansible*", ".config/gh", ".curlrc", ".config/curlrc", ".wgetrc", ".netrc", ".lesskey", ".lessfilter"),
    *(".config/lesskey", ".mailcap", ".procmailrc", ".forward", ".muttrc", ".config/mutt", ".config/neomutt"),
    *(".fetchmailrc", ".rpmmacros", ".makepkg.conf", ".config/pacman", ".config/mpv", ".config/ranger", ".config/lf"),
    *(".config/yazi", ".config/nnn", ".config/vifm", ".vifm", ".config/pre-commit", ".config/user-dirs.dirs"),
    *(".password-store", ".mozilla", ".config/google-chrome*", ".config/chromium*", ".config/BraveSoftware"),
    *(".config/microsoft-edge*", ".rhosts", ".shosts", ".k5login", ".*_history", ".local/share/flatpak", ".nix*"),
    *(".config/nix", ".config/nixpkgs", ".config/home-manager", ".guix-profile", ".config/guix"),
    *OTHER_AGENT_HOMES,
)
"""Files and folders in the home that other programs run, load or trust."""

TRUSTED_IN_PROJECT: tuple[str, ...] = (
    *(".git/hooks", ".githooks", ".husky", ".lefthook", "lefthook.yml", ".lefthook.yml", ".pre-commit-config.yaml"),
    *(".pre-commit-hooks.yaml", ".github/workflows", ".github/actions", ".gitlab-ci.yml", ".gitlab/ci", "Jenkinsfile"),
    *(".circleci", ".travis.yml", "azure-pipelines.yml", ".azure-pipelines", "bitbucket-pipelines.yml", ".drone.yml"),
    *(".woodpecker*", ".buildkite", "appveyor.yml", ".appveyor.yml", ".cirrus.yml", ".teamcity", "cloudbuild.yaml"),
    *(".forgejo/workflows", ".gitea/workflows", ".semaphore", "buildspec.yml", ".envrc", ".devcontainer"),
    *(".vscode/tasks.json", ".vscode/settings.json", ".vscode/launch.json", ".vscode/mcp.json", "*.code-workspace"),
    *(".idea", ".zed", "*.sublime-project", "*.sublime-workspace", ".exrc", ".vim", ".pylintrc", ".lfsconfig"),
    *(".hg/hgrc", ".jj/repo/config.toml", ".cargo/config", ".cargo/config.toml", ".mvn", ".bazelrc", ".yarn/releases"),
    *(".yarn/plugins",),
    *(".nvimrc", ".nvim.lua", ".vimrc", ".lvimrc", ".dir-locals.el", ".gdbinit", ".lldbinit", ".npmrc", ".yarnrc"),
    *(".yarnrc.yml", ".pnpmfile.cjs", "sitecustomize.py", "usercustomize.py", "*.pth", ".mise.toml", "mise.toml"),
    *(".claude", ".codex", ".cursor", ".cursorrules", ".gemini", ".hermes", ".openclaw", ".mcp.json", ".windsurf"),
    *(".continue", ".aider*", ".opencode", "opencode.json", ".kiro", ".roo", ".cline", ".factory"),
)
"""Files and folders of a project, at any depth, that other programs run or trust later."""

WRITTEN_BY_GIT: tuple[str, ...] = (".git/config", ".git/config.worktree", ".git/info/attributes")
"""Files that make git run programs, but that git itself changes (`git push -u`): trusted by the rules only."""


def is_secret_in_home(path: str) -> bool:
    """True if this path, relative to the home, holds secrets."""
    return _matches(path, SECRET_IN_HOME) and not _matches(path, PUBLIC_IN_HOME)


def is_secret_in_project(path: str) -> bool:
    """True if this path, absolute or relative to a project, has the name of a file with credentials."""
    name = path.rpartition("/")[2]
    return _matches(name, SECRET_IN_PROJECT) and not _matches(name, PUBLIC_IN_PROJECT)


def is_secret_in_system(path: str) -> bool:
    """True if this absolute path holds credentials of the machine."""
    return _matches(path, SECRET_IN_SYSTEM)


def is_startup_in_home(path: str) -> bool:
    """True if other programs run, load or trust this path, relative to the home."""
    return _matches(path, STARTUP_IN_HOME)


def is_environment_file(path: str) -> bool:
    """True for `.env` files, which programs load. Commands are not asked about: the sandbox hides those that exist."""
    return is_secret_in_project(path) and "env" in path.rpartition("/")[2]


def is_trusted_in_project(path: str) -> bool:
    """True if this path, relative to a project, is run or trusted later. It may lie in a nested project."""
    parts = path.split("/")
    return any(_matches("/".join(parts[at:]), TRUSTED_IN_PROJECT + WRITTEN_BY_GIT) for at in range(len(parts)))


@cache
def secret_folders_in_home() -> tuple[str, ...]:
    """The plain folders and files of SECRET_IN_HOME, without globs."""
    return tuple(entry for entry in SECRET_IN_HOME if not re.search(r"[*?\[]", entry))


def _matches(path: str, entries: tuple[str, ...]) -> bool:
    return _pattern(entries).match(path) is not None


@cache
def _pattern(entries: tuple[str, ...]) -> re.Pattern[str]:
    return re.compile(f"(?:{'|'.join(map(_to_regex, entries))})(?:/|$)")


def _to_regex(glob: str) -> str:
    return re.escape(glob).replace(r"\*", "[^/]*")
