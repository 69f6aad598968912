"""`alipes setup`: options, the plan, the wizard, and messages for failures."""

import asyncio
import stat
import tomllib
from collections.abc import Sequence
from pathlib import Path

import pytest

from alipes.cli.setup.check import SetupProblem, list_models, list_models_or_v1, try_model, try_model_or_v1
from alipes.cli.setup.choices import (
    CLOUD,
    KEY_PAGES,
    OTHER_SERVER,
    PROVIDER_NOTES,
    default_provider,
    find_local_servers,
    model_choices,
    provider_choices,
)
from alipes.cli.setup.plan import (
    SetupOptions,
    SetupPlan,
    check_url,
    format_changes,
    model_name,
    plan_changes,
    plan_from_options,
    suggest_name,
)
from alipes.cli.setup.prompts import Choice, ChoiceList, SetupCancelled
from alipes.cli.setup.wizard import SetupWizard
from alipes.config.environment import Variables
from alipes.config.known_providers import CLOUDS, KEYED, KNOWN
from alipes.config.loader import build_settings, load_settings
from alipes.config.reader import read_config
from alipes.config.settings import Settings
from alipes.kernel.errors import ConfigError
from alipes.kernel.models import Endpoint, Secret
from alipes.runtime.http.clients import ClientScope
from tests.e2e.program import Finished, Home
from tests.world.model_server import Fail, ModelServer, Say, Truncated
from tests.world.tls import ca_file, server_context

KEY = "sk-canary-0123456789"
CHAT = "openai-chat"


@pytest.fixture
def home(tmp_path):
    return Home(tmp_path / "home")


def read_home(path: Path, **environ: str) -> tuple[Settings, Variables]:
    reading = read_config(path, environ)
    return build_settings(reading), reading.variables


def written(home: Home) -> dict[str, object]:
    file = home.path / "config.toml"
    return tomllib.loads(file.read_text()) if file.exists() else {}


def secrets(home: Home) -> str:
    file = home.path / ".env"
    return file.read_text() if file.exists() else ""


async def set_up(home: Home, *flags: str, stdin: str = "", **environ: str) -> Finished:
    done = await home.run("setup", *flags, stdin=stdin.encode(), **environ)
    assert KEY not in done.out + done.err and "Traceback" not in done.err
    return done


def answering(*names: str, key: str = KEY) -> ModelServer:
    return ModelServer(lambda body: Say("ok"), key=key, models=names or ("big-model", "small-model"))


@pytest.mark.deadline(60)
@pytest.mark.parametrize("api", ["openai-chat", "openai-responses", "anthropic"])
async def test_options_set_up_a_custom_server_with_every_api(home, api):
    async with answering() as server:
        flags = ("--provider", "mine", "--base-url", server.url(api), "--api", api, "--model", "small-model")
        done = await set_up(home, *flags, "--key-stdin", "--yes", stdin=f"{KEY}\n")
        assert (done.status, done.err) == (0, "")
        assert [(asked.api, asked.body["model"]) for asked in server.requests] == [(api, "small-model")]
    provider = {"api": api, "base_url": server.url(api), "key_env": "MINE_API_KEY"}
    assert written(home) == {"model": "mine/small-model", "providers": {"mine": provider}}
    assert secrets(home) == f"MINE_API_KEY={KEY}\n"
    assert stat.S_IMODE((home.path / ".env").stat().st_mode) == 0o600
    for word in ("config.toml", 'model = "mine/small-model"', "MINE_API_KEY=***", "alipes ask", "alipes doctor"):
        assert word in done.out


@pytest.mark.deadline(60)
async def test_a_key_in_a_variable_is_not_copied(home):
    async with answering() as server:
        url = ("--base-url", server.url(CHAT))
        done = await set_up(home, "--provider", "xai", "--key-env", "OTHER", "--model", "m", *url, OTHER=KEY)
    assert done.status == 0 and secrets(home) == ""
    assert written(home)["providers"] == {"xai": {"base_url": server.url(CHAT), "key_env": "OTHER"}}


@pytest.mark.deadline(60)
async def test_an_existing_key_and_a_default_model_need_no_options(home):
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
        ((), "add --provider NAME."),
        (("--provider", "anthropic"), "add --key-env VARIABLE or --key-stdin."),
        (("--provider", "ollama"), "add --model NAME."),
        (("--provider", "x", "--base-url", "http://h/v1"), "add --model NAME."),
        (("--provider", "antropic"), "Did you mean anthropic?"),
        (("--provider", "x y", "--base-url", "http://h/v1"), "is not a valid provider name"),
        (("--provider", "embedded", "--base-url", "http://h/v1"), "is built in"),
        (("--provider", "xai", "--key-env", "NOWHERE"), "NOWHERE is set neither"),
        (("--provider", "xai", "--key-stdin"), "standard input was empty"),
        (("--provider", "xai", "--key-stdin", "--key-env", "X"), "use either"),
        (("--api", "soap"), "Try `alipes setup --help`."),
        (("--nonsense",), "Try `alipes setup --help`."),
    ],
)
async def test_missing_or_wrong_options_are_named_and_nothing_is_saved(home, flags, said):
    done = await set_up(home, *flags)
    assert (done.status, done.out) == (2, "")
    assert said in done.err
    assert not home.path.exists()


@pytest.mark.deadline(60)
@pytest.mark.parametrize(
    ("reply", "said"),
    [
        (Fail(401, "bad key"), "mine rejected the key in MINE_API_KEY (401)"),
        (Fail(402, "pay first"), "is out of credit (402): pay first. The key is valid"),
        (Fail(429, "You exceeded your current quota", kind="insufficient_quota"), "is out of credit (429)"),
        (Fail(404, "no such model", kind="model_not_found"), "Similar to smal-model: small-model"),
        (Fail(500, "on fire"), "is unavailable (500): on fire"),
    ],
)
async def test_a_failed_test_is_explained_and_nothing_is_saved(home, reply, said):
    async with ModelServer(lambda body: reply, models=("big-model", "small-model")) as server:
        flags = ("--provider", "mine", "--base-url", server.url(CHAT), "--model", "smal-model", "--key-stdin")
        done = await set_up(home, *flags, stdin=KEY)
    assert (done.status, done.out) == (1, "")
    assert said in done.err and "Nothing changed. Use --no-check" in done.err
    assert not home.path.exists()


@pytest.mark.deadline(60)
async def test_no_check_sends_no_requests(home):
    flags = ("--provider", "mine", "--base-url", "http://127.0.0.1:9/v1", "--model", "m", "--no-check")
    done = await set_up(home, *flags, "--key-env", "LATER")
    assert done.status == 0
    assert written(home)["providers"]["mine"]["key_env"] == "LATER"


@pytest.mark.deadline(60)
async def test_a_variable_that_overrides_the_choice_is_named(home):
    done = await set_up(home, "--provider", "ollama", "--model", "m", "--no-check", ALIPES_MODEL="scripted")
    assert done.status == 0 and "ALIPES_MODEL is set to scripted" in done.out


@pytest.mark.deadline(60)
async def test_wrong_settings_are_reported_before_any_question(home):
    home.path.mkdir()
    (home.path / "config.toml").write_text("max_steps = 0\n")
    done = await set_up(home, "--provider", "ollama", "--model", "m", "--no-check")
    assert done.status == 2 and "max_steps" in done.err


def test_a_key_is_saved_under_a_name_that_the_environment_does_not_override(tmp_path):
    settings, variables = read_home(tmp_path, XAI_API_KEY="another-key")
    plan = plan_from_options(settings, variables, SetupOptions(provider="xai", key=KEY))
    assert plan_changes(plan, settings) == (
        {("model",): f"xai/{KNOWN['xai'].model}", ("providers", "xai", "key_env"): "ALIPES_XAI_API_KEY"},
        {"ALIPES_XAI_API_KEY": KEY},
    )
    settings, variables = read_home(tmp_path, XAI_API_KEY=KEY)
    assert not plan_from_options(settings, variables, SetupOptions(provider="xai", key=KEY)).save_key


def test_the_shown_changes_do_not_contain_the_key(tmp_path):
    settings, _ = read_home(tmp_path)
    plan = SetupPlan(Endpoint("9mine", "anthropic", "http://h", Secret(KEY), "_9MINE_API_KEY"), "m", save_key=True)
    lines = "\n".join(format_changes(settings, *plan_changes(plan, settings)))
    assert KEY not in lines and "_9MINE_API_KEY=***" in lines and 'base_url = "http://h"' in lines


@pytest.mark.parametrize("key", ["two words", "ünicode-key", "line\nbreak"])
def test_an_invalid_key_is_refused(tmp_path, key):
    settings, variables = read_home(tmp_path)
    with pytest.raises(ConfigError, match="copy it again"):
        plan_from_options(settings, variables, SetupOptions(provider="xai", key=key))


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
    assert suggest_name(url) == name


def test_a_model_may_be_named_with_its_provider(tmp_path):
    settings, variables = read_home(tmp_path, ANTHROPIC_API_KEY=KEY)
    assert model_name(settings, "anthropic", "anthropic/claude-opus-5-5") == "claude-opus-5-5"
    assert model_name(settings, "openrouter", "openrouter/auto") == "openrouter/auto"
    assert model_name(settings, "groq", "openai/gpt-oss-120b") == "openai/gpt-oss-120b"
    assert (
        plan_from_options(settings, variables, SetupOptions(model="anthropic/claude-opus-5-5")).name
        == "anthropic/claude-opus-5-5"
    )


def test_every_known_provider_has_a_note_and_a_key_page():
    assert set(PROVIDER_NOTES) == set(KNOWN) - {"scripted"}
    assert set(KEY_PAGES) == set(KEYED)
    assert all(len(about) < 64 for about in PROVIDER_NOTES.values())


async def test_running_local_servers_are_found_and_come_first(tmp_path):
    async with answering("llama") as server, ClientScope() as scope:
        tables = [
            f'[providers.{name}]\nbase_url = "http://127.0.0.1:9/v1"\n' for name in ("lmstudio", "vllm", "llamacpp")
        ]
        tables.append(f'[providers.ollama]\nbase_url = "{server.url(CHAT)}"\n')
        (tmp_path / "config.toml").write_text("".join(tables) + '[providers.own]\nbase_url = "http://h/v1"\n')
        settings, variables = read_home(tmp_path)
        found = await find_local_servers(settings, scope, within=5.0)
    assert found == {"ollama": 1}
    options = provider_choices(settings, variables, found)
    assert [option.value for option in options[:3]] == ["own", "ollama", "anthropic"]
    assert options[1].note == "Ollama, on this computer: running, 1 model"
    assert options[-1].value == OTHER_SERVER
    assert "not running" in str(options) and "not running" not in str(provider_choices(settings, variables, None))
    assert default_provider(settings, found) == "ollama"


def test_the_default_provider(tmp_path):
    assert default_provider(load_settings(tmp_path, {}), {}) == "anthropic"
    assert default_provider(load_settings(tmp_path, {"GROQ_API_KEY": KEY}), {"ollama": 1}) == "groq"
    assert default_provider(load_settings(tmp_path, {"GROQ_API_KEY": KEY, "ALIPES_MODEL": "xai/x"}), {}) == "xai"


def test_models_are_ordered_by_preference_and_show_their_facts(tmp_path):
    settings, _ = read_home(tmp_path, ALIPES_MODEL="openai/zeta")
    offered = ("zeta", "alpha", "gpt-6.1-sol", "text-embedding-9", "whisper-2", "evil\x1b[2J")
    options = model_choices(settings, settings.providers["openai"], offered)
    assert [option.value for option in options] == ["zeta", "gpt-6.1-sol", "alpha"]
    assert "272k" in options[1].note and options[2].note == "", "nothing is known about it"
    unlisted = model_choices(settings, settings.providers["openai"], ())
    assert "gpt-6.1-sol" in [option.value for option in unlisted]


def test_typing_filters_the_list_and_keeps_the_cursor_visible():
    picker = ChoiceList([Choice(str(n), f"model-{n}", "fast" if n % 2 else "slow") for n in range(50)], first="30")
    assert picker.chosen == "30"
    assert len(picker.visible(7)) == 7 and (True, picker.matching[30]) in picker.visible(7)
    picker.move(1000)
    assert picker.chosen == "49" and picker.visible(7)[-1][0]
    picker.move(-1000)
    assert picker.chosen == "0" and picker.visible(7)[0][0]
    picker.filter("fast 1")
    assert [option.value for option in picker.matching][:3] == ["1", "11", "13"]
    picker.filter("")
    assert picker.chosen == "30"
    picker.filter("nothing like it")
    picker.move(1)
    assert picker.chosen is None and picker.visible(7) == []


def test_prefix_matches_come_first_and_typed_text_can_be_used():
    picker = ChoiceList([Choice("a", "my-claude"), Choice("b", "claude")], free=True)
    picker.filter("claude")
    assert picker.chosen == "b"
    picker.filter(" new-model ")
    assert picker.chosen == "new-model"


async def test_a_truncated_answer_counts_as_an_answer(tmp_path):
    async with ModelServer([Truncated("")], models=("m",)) as server, ClientScope() as scope:
        plan = SetupPlan(Endpoint("mine", "openai-chat", server.url(CHAT)), "m")
        assert isinstance(await try_model(plan, load_settings(tmp_path, {}), scope), float)
        assert server.bodies[0]["max_tokens"] <= 16


async def test_a_forgotten_v1_is_added(tmp_path):
    async with answering("m", key=KEY) as server, ClientScope() as scope:
        endpoint = Endpoint("mine", "openai-chat", server.url("anthropic"), Secret(KEY), "MINE")
        answer, at = await try_model_or_v1(SetupPlan(endpoint, "m"), load_settings(tmp_path, {}), scope, ("m",))
        assert isinstance(answer, float) and at.base_url == server.url(CHAT)
        wrong = Endpoint("mine", "openai-chat", server.url("anthropic"), Secret("wrong"), "MINE")
        answer, at = await try_model_or_v1(SetupPlan(wrong, "m"), load_settings(tmp_path, {}), scope)
        assert isinstance(answer, SetupProblem) and answer.kind == "key" and at.base_url == server.url(CHAT)


async def http_server(answer: bytes, *, only: bytes = b"") -> asyncio.Server:
    async def serve(reader, writer):
        head = await reader.readuntil(b"\r\n\r\n")
        found = only in head
        writer.write(answer if found else b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
        await writer.drain()
        writer.close()

    return await asyncio.start_server(serve, "127.0.0.1", 0)


def reply(status: str, body: bytes) -> bytes:
    return b"HTTP/1.1 %s\r\nConnection: close\r\nContent-Length: %d\r\n\r\n%s" % (status.encode(), len(body), body)


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
async def test_list_errors_are_classified(status, body, kind):
    async with await http_server(reply(status, body)) as server, ClientScope() as scope:
        url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/v1"
        offered = await list_models(Endpoint("mine", "openai-chat", url, Secret(KEY), "MINE"), scope)
    assert isinstance(offered, SetupProblem) and offered.kind == kind
    assert KEY not in str(offered) and str(offered).endswith(".")


@pytest.mark.deadline(60)
async def test_ca_file_makes_a_certificate_trusted(home, tmp_path):
    async with ModelServer(lambda body: Say("ok"), tls=server_context(), models=("m",)) as server:
        flags = ("--provider", "mine", "--base-url", server.url(CHAT), "--model", "m")
        distrusted = await set_up(home, *flags)
        assert distrusted.status == 1 and "is not trusted" in distrusted.err and "ca_file FILE" in distrusted.err
        trusted = await set_up(home, *flags, SSL_CERT_FILE=str(ca_file(tmp_path)))
        assert (trusted.status, trusted.err) == (0, "")


async def test_a_list_is_found_below_v1():
    async with await http_server(reply("200 OK", b'{"data": [{"id": "m"}]}'), only=b"/v1/models") as server:
        url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        async with ClientScope() as scope:
            offered, at = await list_models_or_v1(Endpoint("mine", "openai-chat", url), scope)
            assert (offered, at.base_url) == (("m",), f"{url}/v1")


@pytest.mark.parametrize(
    ("typed", "url"),
    [
        ("localhost:9100/v1", "http://localhost:9100/v1"),
        ("127.0.0.1:9100", "http://127.0.0.1:9100"),
        ("192.168.1.4:8080/v1", "http://192.168.1.4:8080/v1"),
        ("[::1]:8080", "http://[::1]:8080"),
        ("gpu:8000/v1", "http://gpu:8000/v1"),
        ("llm.example.com/v1", "https://llm.example.com/v1"),
        ("llm.example.com:8000/v1", "http://llm.example.com:8000/v1"),
        (" https://llm.example.com ", "https://llm.example.com"),
    ],
)
def test_a_missing_scheme_is_added(typed, url):
    assert check_url(typed) == url


@pytest.mark.parametrize("typed", ["some-model", "openai/gpt-4o", "ftp://x/v1", ""])
def test_a_text_that_is_no_address_gets_no_scheme(typed):
    with pytest.raises(ConfigError):
        check_url(typed)


@pytest.mark.parametrize(
    "listed",
    [
        b'{"id": "m", "max_model_len": 32768}',
        b'{"id": "m", "context_length": 32768, "max_model_len": "much"}',
        b'{"id": "m", "meta": {"n_ctx_train": 32768}}',
    ],
    ids=["vllm", "other", "llamacpp"],
)
async def test_the_window_that_a_server_lists_is_shown(listed):
    async with await http_server(reply("200 OK", b'{"data": [%s]}' % listed)) as server, ClientScope() as scope:
        url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/v1"
        endpoint = Endpoint("mine", "openai-chat", url)
        offered = await list_models(endpoint, scope)
    assert offered == ("m",)
    (choice,) = model_choices(Settings(home=Path("/h"), providers={"mine": endpoint}), endpoint, offered)
    assert choice.note.split() == ["33k", "price", "unknown"]


def test_a_window_that_only_the_server_knows_is_saved():
    endpoint = Endpoint("mine", "openai-chat", "http://127.0.0.1:9/v1")
    plan = SetupPlan(endpoint, "m", window=32768)
    values, _ = plan_changes(plan, Settings(home=Path("/h")))
    assert values["models", "mine/m", "window"] == "32768"
    assert '    models."mine/m".window = 32768' in format_changes(Settings(home=Path("/h")), values, {})


async def test_a_refused_connection_is_unreachable_and_has_advice_for_local_servers():
    async with ClientScope() as scope:
        for name, advice in (("mine", "connection refused. Check the address"), ("ollama", "Is ollama running?")):
            offered = await list_models(Endpoint(name, "openai-chat", "http://127.0.0.1:9/v1"), scope)
            assert isinstance(offered, SetupProblem) and offered.kind == "unreachable" and advice in str(offered)
            assert str(offered).count("Check ") == (name == "mine")
            assert name != "mine" or str(offered).endswith(
                "Check the address and your network, or run `alipes doctor`."
            )


class Scripted:
    """Answers prompts from a script; a missing answer cancels the setup."""

    def __init__(self, *answers: tuple[str, str]) -> None:
        self.answers, self.heard = list(answers), []

    async def choose(
        self, topic: str, options: Sequence[Choice], *, first: str = "", hint: str = "", free: bool = False
    ) -> str:
        values = [option.value for option in options]
        answer = self._answer(topic) or first or values[0]
        assert free or answer in values, (answer, values)
        return answer

    async def text(self, topic: str, first: str = "") -> str:
        return self._answer(topic) or first

    async def secret(self, topic: str) -> str:
        return self._answer(topic)

    def note(self, line: str) -> None:
        self.heard.append(line)

    warn = note

    def _answer(self, topic: str) -> str:
        self.heard.append(topic)
        if not self.answers:
            raise SetupCancelled
        expected, answer = self.answers.pop(0)
        assert expected == topic.split(" (")[0], (topic, self.heard)
        return answer


async def guided(home: Path, person: Scripted, given: SetupOptions | None = None, **environ: str) -> SetupPlan:
    settings, variables = read_home(home, **environ)
    async with ClientScope() as scope:
        plan = await SetupWizard(settings, variables, scope, person, given or SetupOptions()).run()
    assert person.answers == []
    return plan


async def test_out_of_credit_offers_another_model(tmp_path):
    def said(body):
        return Say("ok") if body["model"] == "free" else Fail(402, "no money")

    async with ModelServer(said, models=("costly", "free")) as server:
        person = Scripted(("Key", KEY), ("Model", "costly"), ("What next?", "model"), ("Model", "free"))
        plan = await guided(tmp_path, person, SetupOptions(provider="groq", base_url=server.url(CHAT)))
    assert (plan.name, plan.save_key) == ("groq/free", True)
    assert any("add credit at console.groq.com" in line for line in person.heard)


async def test_a_wrong_address_is_asked_again_and_name_and_key_are_kept(tmp_path):
    async with answering("m") as server, await http_server(b"", only=b"never") as nobody:
        person = Scripted(
            ("Provider", OTHER_SERVER),
            ("Address", f"http://127.0.0.1:{nobody.sockets[0].getsockname()[1]}"),
            ("API", ""),
            ("Name", "mine"),
            ("Key", KEY),
            ("Model", "m"),
            ("What next?", "address"),
            ("Address", server.url("anthropic")),
            ("API", "anthropic"),
            ("Key", ""),
        )
        plan = await guided(tmp_path, person)
    assert plan.name == "mine/m" and plan.save_key
    assert (plan.endpoint.api, plan.endpoint.base_url) == ("anthropic", server.url("anthropic"))
    assert plan.endpoint.key.reveal() == KEY


async def test_a_local_server_needs_no_key_and_can_be_saved_while_it_is_down(tmp_path):
    person = Scripted(("What next?", "keep"), ("Model", "llama:8b"))
    url = "http://127.0.0.1:9/v1"
    plan = await guided(tmp_path, person, SetupOptions(provider="ollama", base_url=url))
    assert (plan.name, plan.endpoint.base_url) == ("ollama/llama:8b", url)


async def test_a_server_without_models_asks_for_a_model_name(tmp_path):
    async with await http_server(reply("200 OK", b'{"data": null}'), only=b"/models") as server:
        url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/v1"
        person = Scripted(("Model", ""), ("Model", "soon"), ("What next?", "keep"))
        plan = await guided(tmp_path, person, SetupOptions(provider="ollama", base_url=url))
    assert plan.name == "ollama/soon" and any("no models yet" in line for line in person.heard)


async def test_an_empty_key_returns_to_the_providers(tmp_path):
    person = Scripted(("Provider", "anthropic"), ("Key", ""), ("Provider", "groq"), ("Key", ""))
    with pytest.raises(SetupCancelled):
        await guided(tmp_path, person, SetupOptions(check=False))
    assert person.heard.count("Provider") == 3


async def test_an_invalid_key_is_asked_again(tmp_path):
    person = Scripted(("Key", "two words"), ("Key", KEY), ("Model", ""))
    plan = await guided(tmp_path, person, SetupOptions(provider="groq", check=False))
    assert plan.endpoint.key.reveal() == KEY
    assert any("copy it again" in line for line in person.heard)


async def test_given_options_are_not_asked(tmp_path):
    async with answering("m") as server:
        given = SetupOptions(provider="mine", base_url=server.url(CHAT), key_env="MINE", model="m")
        plan = await guided(tmp_path, Scripted(), given, MINE=KEY)
    assert plan.name == "mine/m" and not plan.save_key
    assert server.bodies[0]["model"] == "m"


async def test_an_unset_key_variable_is_reported_and_the_key_is_asked(tmp_path):
    async with answering("m") as server:
        person = Scripted(("Key", KEY))
        given = SetupOptions(provider="mine", base_url=server.url(CHAT), key_env="NOWHERE", model="m")
        plan = await guided(tmp_path, person, given)
    assert plan.save_key and plan.endpoint.key_env == "MINE_API_KEY"
    assert any("NOWHERE is set neither" in line for line in person.heard)


@pytest.mark.deadline(60)
async def test_the_demo_model_is_tested_too(tmp_path):
    pytest.importorskip("xllamacpp")
    person = Scripted(("Provider", "embedded"))
    plan = await guided(tmp_path, person)
    assert plan.name == "embedded/smollm2-135m"
    assert any(line.startswith("Test passed") for line in person.heard)


@pytest.mark.parametrize(
    ("name", "own", "fields"),
    [
        ("bedrock", "eu-west-1", ("bedrock", "https://bedrock-runtime.eu-west-1.amazonaws.com", "aws")),
        (
            "vertex-claude", "my-project",
            ("anthropic", "https://aiplatform.googleapis.com/v1/projects/my-project/locations/global/publishers/anthropic",
             "google"),
        ),
        ("azure", "mine", ("openai-responses", "https://mine.openai.azure.com/openai/v1", "azure")),
    ],
)  # fmt: skip
async def test_a_cloud_asks_for_what_is_the_persons_own(tmp_path, name, own, fields):
    topic = CLOUDS[name].asks
    answers = [("Provider", CLOUD), ("Cloud", name), (topic, "not a name!"), (topic, own)]
    if name != "vertex-claude":
        answers.append(("Key", ""))
    person = Scripted(*answers, ("Model", "some-model"))
    made = await guided(tmp_path, person, SetupOptions(check=False))
    at = made.endpoint
    assert (at.name, at.api, at.base_url, at.credentials) == (name, *fields)
    values, saved = plan_changes(made, load_settings(tmp_path, {}))
    assert values["providers", name, "credentials"] == fields[2] and not saved


async def test_a_cloud_with_a_key_uses_the_key(tmp_path):
    person = Scripted(
        ("Provider", CLOUD), ("Cloud", "azure"), (CLOUDS["azure"].asks, "mine"), ("Key", KEY), ("Model", "m")
    )
    made = await guided(tmp_path, person, SetupOptions(check=False))
    assert (made.endpoint.credentials, made.endpoint.key_env, made.endpoint.key.reveal()) == (
        "key",
        "AZURE_API_KEY",
        KEY,
    )


def test_the_address_of_a_cloud_implies_its_api_and_credentials(tmp_path):
    settings, variables = read_home(tmp_path, AWS_ACCESS_KEY_ID="AKID", AWS_SECRET_ACCESS_KEY="secret")
    place = "https://bedrock-runtime.eu-west-1.amazonaws.com"
    made = plan_from_options(settings, variables, SetupOptions(base_url=place, model="eu.anthropic.claude-opus-5"))
    at = made.endpoint
    assert (at.name, at.api, at.credentials) == ("bedrock", "bedrock", "aws")
    assert at.variables["AWS_ACCESS_KEY_ID"].reveal() == "AKID"
    with pytest.raises(
        ConfigError, match=r"bedrock needs its address: add --base-url https://bedrock-runtime\.REGION\."
    ):
        plan_from_options(settings, variables, SetupOptions(provider="bedrock", model="m"))


async def test_missing_credentials_of_a_cloud_are_explained(home):
    place = "https://bedrock-runtime.eu-west-1.amazonaws.com"
    done = await set_up(home, "--base-url", place, "--model", "m", AWS_EC2_METADATA_DISABLED="true")
    assert done.status == 1 and "bedrock has no credentials: set AWS_BEARER_TOKEN_BEDROCK" in done.err
