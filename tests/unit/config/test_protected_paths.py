"""The lists of secret and trusted places."""

import pytest

from alipes.config.protected_paths import (
    is_secret_in_home,
    is_secret_in_project,
    is_secret_in_system,
    is_startup_in_home,
    is_trusted_in_project,
)


@pytest.mark.parametrize(
    "path",
    [
        *(".ssh/id_rsa", ".ssh/deploy_key", ".ssh/work.pem", ".ssh", ".aws/credentials", ".config/gh/hosts.yml"),
        *(".netrc", ".mozilla/firefox/x.default/logins.json", ".config/google-chrome-beta/Default/Cookies"),
        *(".bash_history", ".python_history", ".claude/.credentials.json", ".hermes/.env", ".openclaw/openclaw.json"),
        *(".cargo/credentials.toml", ".gem/credentials", ".m2/settings.xml", ".config/op/config", ".env.production"),
    ],
)
def test_credentials_in_the_home_are_secret(path):
    assert is_secret_in_home(path)


@pytest.mark.parametrize(
    "path", ["", "notes.txt", ".ssh/id_rsa.pub", ".ssh/known_hosts", ".ssh/config", ".sshx", ".bashrc", "work/x.py"]
)
def test_everyday_files_in_the_home_are_not_secret(path):
    assert not is_secret_in_home(path)


def test_env_files_of_a_project_are_secret_but_their_examples_are_not():
    assert all(map(is_secret_in_project, ("/w/.env", "/w/a/.env.production", "prod.env")))
    assert not any(map(is_secret_in_project, ("/w/.env.example", ".env.sample", ".env.template", "env.py", ".envx")))


def test_keys_of_the_machine_are_secret():
    assert all(map(is_secret_in_system, ("/etc/shadow", "/etc/shadow-", "/run/secrets/x", "/etc/ssl/private/a/b")))
    assert not any(map(is_secret_in_system, ("/etc/passwd", "/etc/ssh/sshd_config", "/run/x")))


@pytest.mark.parametrize(
    "path",
    [
        *(".bashrc", ".zlogin", ".config/fish/config.fish", ".config/nvim/init.lua", ".config/systemd/user/x.service"),
        *(".ssh/authorized_keys", ".local/lib/python3.11/site-packages/usercustomize.py", ".codex/config.toml"),
        *("bin/git", ".local/bin/x", "Library/LaunchAgents/x.plist", ".gitconfig", ".config/autostart/x.desktop"),
    ],
)
def test_what_other_programs_run_in_the_home_is_startup(path):
    assert is_startup_in_home(path)


@pytest.mark.parametrize("path", ["", "notes.txt", "work/.bashrc.d", "Documents/x", ".cache/x", ".local/share/x"])
def test_other_files_in_the_home_are_not_startup(path):
    assert not is_startup_in_home(path)


@pytest.mark.parametrize(
    "path",
    [
        *(".git/hooks/pre-push", ".git/config", "sub/.git/hooks/x", ".github/workflows/ci.yml", ".gitlab-ci.yml"),
        *(
            ".hg/hgrc",
            ".jj/repo/config.toml",
            ".zed/tasks.json",
            ".vscode/mcp.json",
            ".cargo/config.toml",
            ".cargo/config",
        ),
        *(".mvn/extensions.xml", ".yarn/releases/yarn.cjs", ".yarn/plugins/x.cjs", ".pylintrc", "x.sublime-project"),
        *(".bazelrc", ".lfsconfig", ".vim/vimrc", "sub/.cargo/config.toml"),
        *("Jenkinsfile", ".envrc", ".vscode/tasks.json", ".mcp.json", ".claude/settings.json", "a/sitecustomize.py"),
    ],
)
def test_what_is_run_later_in_a_project_is_trusted(path):
    assert is_trusted_in_project(path)


@pytest.mark.parametrize("path", ["", "src/x.py", ".git/HEAD", ".gitignore", ".github/ISSUE_TEMPLATE/x.md", "hooks/x"])
def test_ordinary_files_of_a_project_are_not_trusted(path):
    assert not is_trusted_in_project(path)
