"""Programs that need approval on a machine without a sandbox: by their name, or by their subcommand."""

from alipes.agent.approval.risk import Risk
from alipes.agent.approval.shell.subcommands import CLOUD_PROGRAMS, SUBCOMMANDS, for_each

_SERVICE = Risk("system", "stops, starts or changes services of the system")
_NETWORK = Risk("system", "changes the network or settings of the machine")
_UNINSTALL = Risk("system", "uninstalls packages")
_CREDENTIALS = Risk("credential", "prints credentials")
_SCHEDULE = Risk("schedule", "schedules commands or keeps them running")
_SETTINGS = Risk("startup", "changes settings that other programs trust")
_OPENS = Risk("network", "makes something on this machine reachable for others")
_SENDS = Risk("send", "sends files or messages to others")
_SHELL = Risk("hidden", "changes what the shell runs")
_PRIVATE = Risk("credential", "reads the clipboard, the screen, a camera or a microphone")
METADATA_HOST = r"169\.254\.169\.254|metadata\.google\.internal|100\.100\.100\.200|fd00:ec2::254"
"""Where a cloud machine gets its credentials."""
OWN_API = r"(?:localhost|127\.0\.0\.1|0\.0\.0\.0|\[::1\]):8742\b"


ALWAYS_ASK = {
    **{name: Risk("root", f"uses {name} (runs as root)") for name in ("sudo", "doas", "pkexec", "su", "runuser")},
    **for_each("shred srm wipe", Risk("remove", "permanently destroys files")),
    **for_each(
        "shutdown reboot halt poweroff telinit init killall5", Risk("power", "shuts down or restarts the machine")
    ),
    **for_each(
        "useradd userdel usermod groupdel groupadd groupmod adduser deluser passwd chpasswd visudo vipw chsh chfn",
        Risk("accounts", "changes user accounts"),
    ),
    **for_each(
        "insmod rmmod modprobe mount umount swapoff iptables ip6tables nft ufw setenforce losetup kexec",
        Risk("system", "changes the kernel, mounts or the firewall"),
    ),
    **for_each("at batch systemd-run", _SCHEDULE),
    **for_each("gcore", Risk("secret", "reads the memory of another process")),
    **for_each("mail mailx mutt neomutt sendmail msmtp ssmtp swaks", _SENDS),
    **for_each("cloudflared ngrok localtunnel bore frpc", _OPENS),
    **for_each(
        "wl-paste pbpaste screencapture scrot grim maim gnome-screenshot spectacle flameshot arecord parec parecord"
        " pw-record rec fswebcam imagesnap",
        _PRIVATE,
    ),
}
"""Programs that always need approval."""

_TRANSFERS = r"copy\w*|sync|move\w*|delete|purge|serve|rcat|mount"
_CLOUD_SECRETS = (
    r"(?:.* )?(?:configure (?:export-credentials|get)|get-session-token|assume-role\S*|get-secret-value"
    r"|get-login-password|get-federation-token|get-access-token|print-(?:access|identity)-token|auth:token|auth token"
    r"|keyvault secret show|secrets versions access|get-parameters?\b.*--with-decryption|credential show"
    r"|config view .*--raw|config-helper|create token\b|env pull|env:(?:list|get)|config(?::get|$)"
    r"|get secrets?\b.* -o|service-accounts keys create|iam create-access-key)"
)
_OF_THE_MACHINE: dict[str, list[tuple[str, Risk]]] = {
    **for_each(
        "npm pnpm yarn bun cargo poetry uv hatch flit pdm vsce gem twine dart mvn",
        [
            (r"token\b|config get .*(?:_auth|token|password)", _CREDENTIALS),
            (r"(?:config|c) (?:set|delete|edit)\b|set (?!version)", _SETTINGS),
        ],
    ),
    **for_each("pip pip3 conda mamba", [(r"config (?:set|unset|edit|--add|--set)\b", _SETTINGS)]),
    "gh": [
        (
            r"(?:.* )?auth (?:.* )?(?:token|setup-git|git-credential|refresh|login)\b|auth status .*(?:-t|--show-token)"
            r"|config get .*token",
            _CREDENTIALS,
        ),
        (r"extension (?:install|upgrade)|alias (?:set|import)|config set", _SETTINGS),
    ],
    "systemctl": [
        (
            r"(?:re)?start|try-restart|reload\b|stop|disable|mask|unmask|isolate|kill|poweroff|reboot|halt|kexec|suspend"
            r"|hibernate|enable|edit|link|preset|set-\S+|import-environment|revert",
            _SERVICE,
        )
    ],
    "service": [(r"\S+ (?:stop|start|restart|reload)", _SERVICE)],
    "loginctl": [(r"terminate-|kill-|enable-linger|disable-linger|lock|attach", _SERVICE)],
    "launchctl": [
        (r"load|unload|bootstrap|bootout|submit|start|stop|remove|enable|disable|kickstart|setenv", _SERVICE)
    ],
    "ifconfig": [(r"\S+ .*(?:down|up|add|del|netmask|\d+\.\d)", _NETWORK)],
    "ip": [(r"(?:.* )?(?:set|add|del|delete|flush|change|replace)\b", _NETWORK)],
    "nmcli": [(r"(?:.* )?(?:up|down|delete|modify|off|on|add|connect|disconnect|edit)\b", _NETWORK)],
    **for_each("route rfkill networksetup", [(r".*(?:add|del|block|set)", _NETWORK)]),
    **for_each("timedatectl hostnamectl localectl", [(r"set-", _NETWORK)]),
    "sysctl": [(r".*(?:=|-w|-p)", _NETWORK)],
    "tailscale": [(r"funnel|serve|up|down|logout|set", _OPENS)],
    **for_each("gsettings dconf defaults", [(r"set|write|reset|load|delete", _SETTINGS)]),
    **for_each("update-alternatives alternatives", [(r"--(?!list|display|query)", _SETTINGS)]),
    **for_each(
        "apt apt-get aptitude dnf yum zypper apk pkg brew",
        [(r"remove|purge|autoremove|erase|del\b|uninstall|rm\b", _UNINSTALL)],
    ),
    "dpkg": [(r"-r|-P|--rem|--pur", _UNINSTALL)],
    "pacman": [(r"-R", _UNINSTALL)],
    **for_each(
        CLOUD_PROGRAMS,
        [
            (_CLOUD_SECRETS, _CREDENTIALS),
            (r"(?:s3 |-m )?(?:sync|cp|mv|rsync) (?:-\S+ )*(?!s3:|gs:)\S+ (?:s3|gs)://", _SENDS),
        ],
    ),
    "go": [(r"env .*-w", _SETTINGS)],
    **for_each("xdg-settings xdg-mime", [(r"set|default", _SETTINGS)]),
    **for_each("azcopy s3cmd mc", [(r"(?:cp|copy|put|sync|mirror|mv|rm|remove)\b", _SENDS)]),
    "rclone": [(rf"(?:.* )?(?:{_TRANSFERS})\b", _SENDS), (r"config (?:show|dump|file|password)", _CREDENTIALS)],
    "crontab": [(r"(?!-l$)", Risk("schedule", "changes scheduled commands (crontab)"))],
    **for_each("zfs btrfs", [(r"(?:.* )?(?:destroy|delete|rollback|send|receive)\b", Risk("disk", "changes disks"))]),
    **for_each("doppler infisical chamber aws-vault envchain teller", [(r"(?!--version|--help)\S", _CREDENTIALS)]),
    **for_each("hf huggingface-cli claude codex firebase", [(r".*(?:auth token|setup-token|login:ci)", _CREDENTIALS)]),
    "secret-tool": [(r"lookup|search|clear|store", _CREDENTIALS)],
    "security": [(r"find-\S*password|dump-keychain|export|unlock|delete|add-", _CREDENTIALS)],
    **for_each("op bw lpass rbw gopass keyring pass-cli", [(r"(?!--version|--help|status|ls\b|sync)\S", _CREDENTIALS)]),
    "pass": [(r"(?!ls\b|list\b|--version|help|version|find\b)\S", _CREDENTIALS)],
    "vault": [(r"read|kv (?:get|list)|token|print|login|write|delete|unwrap", _CREDENTIALS)],
    "ansible-vault": [(r"view|decrypt|edit", _CREDENTIALS)],
    "sops": [(r".*(?:-d\b|--decrypt|decrypt\b|exec-env|edit)", _CREDENTIALS)],
    "gpg": [(r".*(?:--export-secret|--decrypt|-d\b)", _CREDENTIALS)],
    "ssh-keygen": [(r".*-y\b", _CREDENTIALS)],
    **for_each("xclip xsel", [(r"(?:.* )?(?:-o|--output|-out)\b", _PRIVATE)]),
    "ffmpeg": [(r".*-f (?:x11grab|pulse|alsa|avfoundation|v4l2|video4linux2|kmsgrab|gdigrab)\b", _PRIVATE)],
    "ssh": [(r"(?:-\S+ (?:\d+ )?)*-[a-zA-Z]*R", _OPENS)],
    "import": [(r".*(?:-window\b|\.(?:png|jpe?g|gif|pdf|xwd)$)", _PRIVATE)],
    "hash": [(r"(?:.* )?-\w*p", _SHELL)],
    "enable": [(r"(?:.* )?-\w*f", _SHELL)],
    "bind": [(r"(?:.* )?-\w*[xf]", _SHELL)],
    "fc": [(r"(?:.* )?-\w*[es]", _SHELL)],
    **for_each("complete compgen", [(r"(?:.* )?-\w*[CW]", _SHELL)]),
}
"""By program: patterns for the start of its joined arguments that need approval, and the risk."""
HOST_SUBCOMMANDS = {
    name: [*SUBCOMMANDS.get(name, ()), *_OF_THE_MACHINE.get(name, ())] for name in SUBCOMMANDS | _OF_THE_MACHINE
}
