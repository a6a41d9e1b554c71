"""The message for a package that is not installed."""

import re
import tomllib
from pathlib import Path

import pytest

from whilst.core.errors import EXTRAS, UserError, name_missing_extra


@pytest.mark.parametrize(("package", "extra"), [("torch", "train"), ("onnx.helper", "export")])
def test_a_missing_package_names_its_extra(package: str, extra: str) -> None:
    message = rf"^{package.partition('.')[0]} is not installed: pip install 'whilst\[{extra}\]'$"
    with pytest.raises(UserError, match=message), name_missing_extra():
        raise ModuleNotFoundError(name=package)


def test_other_missing_modules_are_errors_of_the_code() -> None:
    with pytest.raises(ModuleNotFoundError), name_missing_extra():
        raise ModuleNotFoundError(name="whilst.nothing")


def test_every_package_of_an_extra_is_known() -> None:
    project = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    for extra, packages in EXTRAS.items():
        required = project["optional-dependencies"][extra]
        names = {re.split(r"[^\w-]", item)[0].replace("-", "_") for item in required}
        assert {{"pyyaml": "yaml"}.get(name, name) for name in names - {"whilst"}} == set(packages), extra
