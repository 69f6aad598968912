"""`alipes setup` without a terminal: flags, what is planned, what is tried, and what is said when it fails."""

import asyncio
import stat
import tomllib
from collections.abc import Sequence
from pathlib import Path

import pytest

from alipes.cli.setup.check import Trouble, ask, ask_somewhere, list_models, list_somewhere
from alipes.cli.setup.choices import ABOUT, ANOTHER, KEYS_AT, find_local, model_options, preferred, providers
from alipes.cli.setup.plan import Given, Plan, changes, model_of, name_for, settle, told
from alipes.cli.setup.prompts import Left, Option, Picker
from alipes.cli.setup.wizard import Guide
from alipes.config.environment import Variables
from alipes.config.known_providers import KEYED, KNOWN
from alipes.config.loader import read
from alipes.config.settings import Settings, build, load
from alipes.kernel.errors import ConfigError
from alipes.kernel.models import Endpoint, Secret
from alipes.runtime.http.clients import ClientScope
from tests.e2e.program import Done, Home
from tests.world.model_server import Fail, ModelServer, Say, Truncated
from tests.world.tls import ca_file, server_context

KEY = "sk-canary-0123456789"
CHAT = "openai-chat"


@pytest.fixture
def home(tmp_path):
    return Home(tmp_path / "home")


def read_home(path: Path, **environ: str) -> tuple[Settings, Variables]:
    reading = read(path, environ)
    return build(reading), reading.variables


def written(home: Home) -> dict[str, object]:
    file = home.path / "config.toml"
    return tomllib.loads(file.read_text()) if file.exists() else {}


def secrets(home: Home) -> str:
    file = home.path / ".env"
    return file.read_text() if file.exists() else ""


async def set_up(home: Home, *flags: str, stdin: str = "", **environ: str) -> Done:
    done = await home.run("setup", *flags, stdin=stdin.encode(), **environ)
    assert KEY not in done.out + done.err and "Traceback" not in done.err
    return done


def answering(*names: str, key: str = KEY) -> ModelServer:
    return ModelServer(lambda body: Say("ok"), key=key, models=names or ("big-model", "small-model"))


@pytest.mark.deadline(60)
@pytest.mark.parametrize("api", ["openai-chat", "openai-responses", "anthropic"])
async def test_flags_set_up_a_server_of_ones_own_over_every_api(home, api):
    async with answering() as server:
        flags = ("--provider", "mine", "--base-url", server.url(api), "--api", api, "--model", "small-model")
        done = await set_up(home, *flags, "--key-stdin", "--yes", stdin=f"{KEY}\n")
        assert (done.status, done.err) == (0, "")
        assert [(asked.api, asked.body["model"]) for asked in server.requests] == [(api, "small-model")]
    provider = {"api": api, "base_url": server.url(api), "key_env": "MINE_API_KEY"}
    assert written(home) == {"model": "mine/small-model", "providers": {"mine": provider}}
    assert secrets(home) == f"MINE_API_KEY={KEY}\n"
    assert stat.S_IMODE((home.path / ".env").stat().st_mode) == 0o600
    for word in (
        "config.toml",
        'model = "mine/small-model"',
        "MINE_API_KEY=***",
        "alipes ask",
        "alipes doctor",
    ):
        assert word in done.out


@pytest.mark.deadline(60)
async def test_a_key_in_a_variable_stays_there(home):
    async with answering() as server:
        url = ("--base-url", server.url(CHAT))
        done = await set_up(home, "--provider", "xai", "--key-env", "OTHER", "--model", "m", *url, OTHER=KEY)
    assert done.status == 0 and secrets(home) == ""
    assert written(home)["providers"] == {"xai": {"base_url": server.url(CHAT), "key_env": "OTHER"}}


@pytest.mark.deadline(60)
async def test_a_key_that_is_there_already_and_a_usual_model_need_no_flags(home):
    async with answering() as server:
        home.path.mkdir()
        (home.path / "config.toml").write_text(f'# mine\n[providers.xai]\nbase_url = "{server.url(CHAT)}"\n')
        done = await set_up(home, "--provider", "xai", XAI_API_KEY=KEY)
    assert done.status == 0 and written(home)["model"] == f"xai/{KNOWN['xai'].model}"
    assert (home.path / "config.toml").read_text().startswith("# mine\n")


@pytest.mark.deadline(60)
@pytest.mark.parametrize(
    ("flags", "said"),
    [
        ((), "needs --provider NAME."),
        (("--provider", "anthropic"), "needs --key-env VARIABLE or --key-stdin."),
        (("--provider", "ollama"), "needs --model NAME."),
        (("--provider", "x", "--base-url", "http://h/v1"), "needs --model NAME."),
        (("--provider", "antropic"), "Did you mean anthropic?"),
        (("--provider", "x y", "--base-url", "http://h/v1"), "is no name for a provider"),
        (("--provider", "x", "--base-url", "localhost:9"), "has no scheme: write http://localhost:9"),
        (("--provider", "embedded", "--base-url", "http://h/v1"), "is built in"),
        (("--provider", "xai", "--key-env", "NOWHERE"), "NOWHERE is not set"),
        (("--provider", "xai", "--key-stdin"), "standard input was empty"),
        (("--provider", "xai", "--key-stdin", "--key-env", "X"), "contradict"),
        (("--api", "soap"), "Try `alipes setup --help`."),
        (("--nonsense",), "Try `alipes setup --help`."),
    ],
)
async def test_what_is_missing_or_wrong_is_named_and_nothing_is_written(home, flags, said):
    done = await set_up(home, *flags)
    assert (done.status, done.out) == (2, "")
    assert said in done.err
    assert not home.path.exists()


@pytest.mark.deadline(60)
@pytest.mark.parametrize(
    ("reply", "said"),
    [
        (Fail(401, "bad key"), "mine does not accept the key in MINE_API_KEY (401)"),
        (Fail(402, "pay first"), "says the credit is used up (402): pay first. The key itself is right"),
        (Fail(429, "You exceeded your current quota", kind="insufficient_quota"), "the credit is used up"),
        (Fail(404, "no such model", kind="model_not_found"), "Near to smal-model: small-model"),
        (Fail(500, "on fire"), "cannot answer now (500): on fire"),
    ],
)
async def test_what_does_not_work_is_said_and_nothing_is_written(home, reply, said):
    async with ModelServer(lambda body: reply, models=("big-model", "small-model")) as server:
        flags = ("--provider", "mine", "--base-url", server.url(CHAT), "--model", "smal-model", "--key-stdin")
        done = await set_up(home, *flags, stdin=KEY)
    assert (done.status, done.out) == (1, "")
    assert said in done.err and "Nothing was changed. --no-check" in done.err
    assert not home.path.exists()


@pytest.mark.deadline(60)
async def test_without_the_check_nobody_is_asked(home):
    flags = ("--provider", "mine", "--base-url", "http://127.0.0.1:9/v1", "--model", "m", "--no-check")
    done = await set_up(home, *flags, "--key-env", "LATER")
    assert done.status == 0
    assert written(home)["providers"]["mine"]["key_env"] == "LATER"


@pytest.mark.deadline(60)
async def test_a_variable_that_wins_over_the_choice_is_named(home):
    done = await set_up(home, "--provider", "ollama", "--model", "m", "--no-check", ALIPES_MODEL="scripted")
    assert done.status == 0 and "ALIPES_MODEL says scripted" in done.out


@pytest.mark.deadline(60)
async def test_wrong_settings_are_told_before_anything_is_asked(home):
    home.path.mkdir()
    (home.path / "config.toml").write_text("max_steps = 0\n")
    done = await set_up(home, "--provider", "ollama", "--model", "m", "--no-check")
    assert done.status == 2 and "max_steps" in done.err


def test_a_key_goes_where_the_environment_does_not_hide_it(tmp_path):
    settings, variables = read_home(tmp_path, XAI_API_KEY="another-key")
    plan = settle(settings, variables, Given(provider="xai", key=KEY))
    assert changes(plan, settings) == (
        {("model",): f"xai/{KNOWN['xai'].model}", ("providers", "xai", "key_env"): "ALIPES_XAI_API_KEY"},
        {"ALIPES_XAI_API_KEY": KEY},
    )
    settings, variables = read_home(tmp_path, XAI_API_KEY=KEY)
    assert not settle(settings, variables, Given(provider="xai", key=KEY)).keep


def test_what_is_told_of_the_changes_holds_no_key(tmp_path):
    settings, _ = read_home(tmp_path)
    plan = Plan(Endpoint("9mine", "anthropic", "http://h", Secret(KEY), "_9MINE_API_KEY"), "m", keep=True)
    lines = "\n".join(told(settings, *changes(plan, settings)))
    assert KEY not in lines and "_9MINE_API_KEY=***" in lines and 'base_url = "http://h"' in lines


@pytest.mark.parametrize("key", ["two words", "ünicode-key", "line\nbreak"])
def test_what_cannot_be_a_key_is_refused(tmp_path, key):
    settings, variables = read_home(tmp_path)
    with pytest.raises(ConfigError, match="copy it again"):
        settle(settings, variables, Given(provider="xai", key=key))


@pytest.mark.parametrize(
    ("url", "name"),
    [
        ("https://api.together.xyz/v1", "together"),
        ("https://api.openai.com/v1", "my-openai"),
        ("http://127.0.0.1:8000/v1", "local"),
        ("http://[::1]:8000/v1", "local"),
        ("http://localhost/v1", "local"),
        ("https://gateway.example.com", "example"),
    ],
)
def test_a_server_is_named_after_its_host(url, name):
    assert name_for(url) == name


def test_a_model_may_be_named_with_its_provider(tmp_path):
    settings, variables = read_home(tmp_path, ANTHROPIC_API_KEY=KEY)
    assert model_of(settings, "anthropic", "anthropic/claude-opus-5-5") == "claude-opus-5-5"
    assert model_of(settings, "openrouter", "openrouter/auto") == "openrouter/auto"
    assert model_of(settings, "groq", "openai/gpt-oss-120b") == "openai/gpt-oss-120b"
    assert (
        settle(settings, variables, Given(model="anthropic/claude-opus-5-5")).name
        == "anthropic/claude-opus-5-5"
    )


def test_every_known_provider_is_described_and_says_where_its_keys_are():
    assert set(ABOUT) == set(KNOWN) - {"scripted"}
    assert set(KEYS_AT) == set(KEYED)
    assert all(len(about) < 64 for about in ABOUT.values())


async def test_servers_that_run_here_are_found_and_come_first(tmp_path):
    async with answering("llama") as server, ClientScope() as scope:
        tables = [
            f'[providers.{name}]\nbase_url = "http://127.0.0.1:9/v1"\n'
            for name in ("lmstudio", "vllm", "llamacpp")
        ]
        tables.append(f'[providers.ollama]\nbase_url = "{server.url(CHAT)}"\n')
        (tmp_path / "config.toml").write_text("".join(tables) + '[providers.own]\nbase_url = "http://h/v1"\n')
        settings, variables = read_home(tmp_path)
        found = await find_local(settings, scope, within=5.0)
    assert found == {"ollama": 1}
    options = providers(settings, variables, found)
    assert [option.value for option in options[:3]] == ["own", "ollama", "anthropic"]
    assert options[1].note == "Ollama, on this computer: running, 1 model"
    assert options[-1].value == ANOTHER
    assert "not running" in str(options) and "not running" not in str(providers(settings, variables, None))
    assert "scripted" not in [option.value for option in options]
    assert preferred(settings, found) == "ollama"


def test_who_is_preselected(tmp_path):
    assert preferred(load(tmp_path, {}), {}) == "anthropic"
    assert preferred(load(tmp_path, {"GROQ_API_KEY": KEY}), {"ollama": 1}) == "groq"
    assert preferred(load(tmp_path, {"GROQ_API_KEY": KEY, "ALIPES_MODEL": "xai/x"}), {}) == "xai"


def test_models_come_in_the_order_of_preference_with_what_is_known_of_them(tmp_path):
    settings, _ = read_home(tmp_path, ALIPES_MODEL="openai/zeta")
    offered = ("zeta", "alpha", "gpt-6.1-sol", "text-embedding-9", "whisper-2", "evil\x1b[2J")
    options = model_options(settings, settings.providers["openai"], offered)
    assert [option.value for option in options] == ["zeta", "gpt-6.1-sol", "alpha"]
    assert "272k" in options[1].note and options[2].note.split() == ["?", "unknown"]
    unlisted = model_options(settings, settings.providers["openai"], ())
    assert "gpt-6.1-sol" in [option.value for option in unlisted]


def test_typing_narrows_the_list_and_keeps_the_picked_one_in_sight():
    picker = Picker(
        [Option(str(n), f"model-{n}", "fast" if n % 2 else "slow") for n in range(50)], first="30"
    )
    assert picker.chosen == "30"
    assert len(picker.seen(7)) == 7 and (True, picker.found[30]) in picker.seen(7)
    picker.move(1000)
    assert picker.chosen == "49" and picker.seen(7)[-1][0]
    picker.move(-1000)
    assert picker.chosen == "0" and picker.seen(7)[0][0]
    picker.narrow("fast 1")
    assert [option.value for option in picker.found][:3] == ["1", "11", "13"]
    picker.narrow("")
    assert picker.chosen == "30"
    picker.narrow("nothing like it")
    picker.move(1)
    assert picker.chosen is None and picker.seen(7) == []


def test_what_begins_as_typed_comes_first_and_what_is_typed_can_be_taken():
    picker = Picker([Option("a", "my-claude"), Option("b", "claude")], free=True)
    picker.narrow("claude")
    assert picker.chosen == "b"
    picker.narrow(" new-model ")
    assert picker.chosen == "new-model"


async def test_an_answer_that_is_cut_at_once_is_an_answer(tmp_path):
    async with ModelServer([Truncated("")], models=("m",)) as server, ClientScope() as scope:
        plan = Plan(Endpoint("mine", "openai-chat", server.url(CHAT)), "m")
        assert isinstance(await ask(plan, load(tmp_path, {}), scope), float)
        assert server.bodies[0]["max_tokens"] <= 16


async def test_the_v1_that_was_left_out_is_found(tmp_path):
    async with answering("m", key=KEY) as server, ClientScope() as scope:
        endpoint = Endpoint("mine", "openai-chat", server.url("anthropic"), Secret(KEY), "MINE")
        answer, at = await ask_somewhere(Plan(endpoint, "m"), load(tmp_path, {}), scope, ("m",))
        assert isinstance(answer, float) and at.base_url == server.url(CHAT)
        wrong = Endpoint("mine", "openai-chat", server.url("anthropic"), Secret("wrong"), "MINE")
        answer, at = await ask_somewhere(Plan(wrong, "m"), load(tmp_path, {}), scope)
        assert isinstance(answer, Trouble) and answer.kind == "key" and at.base_url == server.url(CHAT)


async def http_server(answer: bytes, *, only: bytes = b"") -> asyncio.Server:
    async def serve(reader, writer):
        head = await reader.readuntil(b"\r\n\r\n")
        found = only in head
        writer.write(
            answer if found else b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"
        )
        await writer.drain()
        writer.close()

    return await asyncio.start_server(serve, "127.0.0.1", 0)


def reply(status: str, body: bytes) -> bytes:
    return b"HTTP/1.1 %s\r\nConnection: close\r\nContent-Length: %d\r\n\r\n%s" % (
        status.encode(),
        len(body),
        body,
    )


@pytest.mark.parametrize(
    ("status", "body", "kind"),
    [
        ("200 OK", b"<html>hello</html>", "address"),
        ("200 OK", b'{"data": 7}', "address"),
        ("404 Not Found", b"<html>hello</html>", "address"),
        ("401 Unauthorized", b'{"error": {"message": "no"}}', "key"),
        ("403 Forbidden", b'{"error": {"message": "no"}}', "key"),
        ("402 Payment Required", b'{"error": {"message": "no"}}', "credit"),
        ("503 Service Unavailable", b"busy", "unreachable"),
    ],
)
async def test_what_is_said_in_place_of_a_list_tells_whose_fault_it_is(status, body, kind):
    async with await http_server(reply(status, body)) as server, ClientScope() as scope:
        url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/v1"
        offered = await list_models(Endpoint("mine", "openai-chat", url, Secret(KEY), "MINE"), scope)
    assert isinstance(offered, Trouble) and offered.kind == kind
    assert KEY not in str(offered) and str(offered).endswith(".")


@pytest.mark.deadline(60)
async def test_a_certificate_is_trusted_by_the_file_that_the_settings_name(home, tmp_path):
    async with ModelServer(lambda body: Say("ok"), tls=server_context(), models=("m",)) as server:
        flags = ("--provider", "mine", "--base-url", server.url(CHAT), "--model", "m")
        distrusted = await set_up(home, *flags)
        assert (
            distrusted.status == 1 and "is not trusted" in distrusted.err and "ca_file FILE" in distrusted.err
        )
        trusted = await set_up(home, *flags, SSL_CERT_FILE=str(ca_file(tmp_path)))
        assert (trusted.status, trusted.err) == (0, "")


async def test_a_list_is_found_below_v1():
    async with await http_server(reply("200 OK", b'{"data": [{"id": "m"}]}'), only=b"/v1/models") as server:
        url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        async with ClientScope() as scope:
            offered, at = await list_somewhere(Endpoint("mine", "openai-chat", url), scope)
            assert (offered, at.base_url) == (("m",), f"{url}/v1")


async def test_nobody_there_is_unreachable_and_a_local_server_is_asked_after():
    async with ClientScope() as scope:
        for name, advice in (("mine", "Check the network"), ("ollama", "Is ollama running?")):
            offered = await list_models(Endpoint(name, "openai-chat", "http://127.0.0.1:9/v1"), scope)
            assert isinstance(offered, Trouble) and offered.kind == "unreachable" and advice in str(offered)


class Scripted:
    """A person who knows beforehand what they will answer; an answer they do not have makes them leave."""

    def __init__(self, *answers: tuple[str, str]) -> None:
        self.answers, self.heard = list(answers), []

    async def choose(
        self, topic: str, options: Sequence[Option], *, first: str = "", hint: str = "", free: bool = False
    ) -> str:
        values = [option.value for option in options]
        answer = self._answer(topic) or first or values[0]
        assert free or answer in values, (answer, values)
        return answer

    async def text(self, topic: str, first: str = "") -> str:
        return self._answer(topic) or first

    async def secret(self, topic: str) -> str:
        return self._answer(topic)

    def tell(self, line: str) -> None:
        self.heard.append(line)

    warn = tell

    def _answer(self, topic: str) -> str:
        self.heard.append(topic)
        if not self.answers:
            raise Left
        expected, answer = self.answers.pop(0)
        assert expected == topic.split(" (")[0], (topic, self.heard)
        return answer


async def guided(home: Path, person: Scripted, given: Given | None = None, **environ: str) -> Plan:
    settings, variables = read_home(home, **environ)
    async with ClientScope() as scope:
        plan = await Guide(settings, variables, scope, person, given or Given()).plan()
    assert person.answers == []
    return plan


async def test_without_credit_another_model_may_do(tmp_path):
    def said(body):
        return Say("ok") if body["model"] == "free" else Fail(402, "no money")

    async with ModelServer(said, models=("costly", "free")) as server:
        person = Scripted(("Key", KEY), ("Model", "costly"), ("Now", "model"), ("Model", "free"))
        plan = await guided(tmp_path, person, Given(provider="groq", base_url=server.url(CHAT)))
    assert (plan.name, plan.keep) == ("groq/free", True)
    assert any("add credit at console.groq.com" in line for line in person.heard)


async def test_a_wrong_address_is_asked_for_again_and_name_and_key_are_kept(tmp_path):
    async with answering("m") as server, await http_server(b"", only=b"never") as nobody:
        person = Scripted(
            ("Provider", ANOTHER),
            ("Address", f"http://127.0.0.1:{nobody.sockets[0].getsockname()[1]}"),
            ("API", ""),
            ("A name for it", "mine"),
            ("Key", KEY),
            ("Model", "m"),
            ("Now", "address"),
            ("Address", server.url("anthropic")),
            ("API", "anthropic"),
            ("Key", ""),
        )
        plan = await guided(tmp_path, person)
    assert plan.name == "mine/m" and plan.keep
    assert (plan.endpoint.api, plan.endpoint.base_url) == ("anthropic", server.url("anthropic"))
    assert plan.endpoint.key.reveal() == KEY


async def test_a_local_server_is_asked_no_key_and_what_is_down_can_be_kept(tmp_path):
    person = Scripted(("Now", "keep"), ("Model", "llama:8b"))
    url = "http://127.0.0.1:9/v1"
    plan = await guided(tmp_path, person, Given(provider="ollama", base_url=url))
    assert (plan.name, plan.endpoint.base_url) == ("ollama/llama:8b", url)


async def test_a_server_without_models_is_asked_for_the_one_it_will_have(tmp_path):
    async with await http_server(reply("200 OK", b'{"data": null}'), only=b"/models") as server:
        url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/v1"
        person = Scripted(("Model", ""), ("Model", "soon"), ("Now", "keep"))
        plan = await guided(tmp_path, person, Given(provider="ollama", base_url=url))
    assert plan.name == "ollama/soon" and any("no models yet" in line for line in person.heard)


async def test_enter_in_place_of_a_key_goes_back_to_the_providers(tmp_path):
    person = Scripted(("Provider", "anthropic"), ("Key", ""), ("Provider", "groq"), ("Key", ""))
    with pytest.raises(Left):
        await guided(tmp_path, person, Given(check=False))
    assert person.heard.count("Provider") == 3


async def test_a_key_that_is_no_key_is_asked_for_again(tmp_path):
    person = Scripted(("Key", "two words"), ("Key", KEY), ("Model", ""))
    plan = await guided(tmp_path, person, Given(provider="groq", check=False))
    assert plan.endpoint.key.reveal() == KEY
    assert any("copy it again" in line for line in person.heard)


async def test_what_was_given_is_not_asked(tmp_path):
    async with answering("m") as server:
        given = Given(provider="mine", base_url=server.url(CHAT), key_env="MINE", model="m")
        plan = await guided(tmp_path, Scripted(), given, MINE=KEY)
    assert plan.name == "mine/m" and not plan.keep
    assert server.bodies[0]["model"] == "m"


async def test_a_given_variable_that_is_not_set_is_told_and_the_key_asked_for(tmp_path):
    async with answering("m") as server:
        person = Scripted(("Key", KEY))
        given = Given(provider="mine", base_url=server.url(CHAT), key_env="NOWHERE", model="m")
        plan = await guided(tmp_path, person, given)
    assert plan.keep and plan.endpoint.key_env == "MINE_API_KEY"
    assert any("NOWHERE is not set" in line for line in person.heard)


@pytest.mark.deadline(60)
async def test_the_toy_is_tried_too(tmp_path):
    pytest.importorskip("xllamacpp")
    person = Scripted(("Provider", "embedded"))
    plan = await guided(tmp_path, person)
    assert plan.name == "embedded/smollm2-135m"
    assert any(line.startswith("It answers") for line in person.heard)
