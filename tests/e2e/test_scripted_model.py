"""The scripted model belongs to the test kit: the product neither lists nor opens it."""

from tests.e2e.program import Home

PRODUCT = {"ALIPES_TEST_PROVIDER": ""}


async def test_the_product_does_not_list_the_scripted_model(tmp_path):
    done = await Home(tmp_path / "home").run("model", "--all", **PRODUCT)
    assert done.status == 0 and "embedded/" in done.out and "scripted" not in done.out


async def test_the_product_does_not_open_the_scripted_model(tmp_path):
    done = await Home(tmp_path / "home").run("ask", "-m", "scripted", "hi", **PRODUCT)
    assert done.status == 2 and "Unknown model or provider 'scripted'" in done.err


async def test_the_variable_imports_only_modules_of_the_test_kit(tmp_path):
    done = await Home(tmp_path / "home").run("model", ALIPES_TEST_PROVIDER="..cli.main")
    assert done.status == 0 and "scripted" not in done.out
