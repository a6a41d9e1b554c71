"""The table of lags: which policy it finds for a lag, and what it says where there is none."""

from pathlib import Path

import pytest

from tests.helpers.random_runs import make_varied_run
from whilst.core.errors import UserError
from whilst.core.files import read_json, write_json
from whilst.core.policy_spec import PolicySpec
from whilst.core.settings import Data
from whilst.data.dataset import Dataset
from whilst.model.lags import Lag, LagTable, at_lag, lags_path, read_lags


def row(policy: str, lag: float, bleu: float) -> Lag:
    return Lag(policy, lag, lag - 0.1, lag + 0.1, lag + 0.5, bleu)


TABLE = LagTable(
    "0",
    20,
    (
        row("oracle-1", 2.0, 40.0),
        row("agent-1.threshold-0.4", 1.23, 10.0),
        row("agent-1.threshold-0.8", 4.0, 20.0),  # unsorted
        row("agent-1.threshold-0.6", 2.0, 15.0),
        row("agent-3.threshold-0.5", 3.0, 16.0),
        row("agent-3.threshold-0.7", 5.0, 24.0),
        row("agent-7.threshold-0.5", 7.01, 24.0),
        row("agent-7.threshold-0.6", 7.77, 24.0),
    ),
)


@pytest.fixture
def run(tmp_path: Path, toy_data: Data, toy_dataset: Dataset) -> Path:
    return make_varied_run(tmp_path / "run", toy_data, toy_dataset)


@pytest.mark.parametrize(
    ("lag", "policy", "had"),
    [
        ("2", "agent-1.threshold-0.6", "2.0"),
        ("2.5", "agent-1.threshold-0.65", "2.5"),
        ("3", "agent-1.threshold-0.7", "3.0"),  # 17.5 BLEU, agent-3 has 16
        ("4", "agent-1.threshold-0.8", "4.0"),  # 20 and 20: which of the two is not important
        ("4.2", "agent-3.threshold-0.62", "4.2"),
        ("5.6", "agent-3.threshold-0.7", "5.0"),  # between two intervals
        ("6.9", "agent-7.threshold-0.5", "7.0"),
    ],
)
def test_the_best_policy_with_a_lag(lag: str, policy: str, had: str) -> None:
    found, note = TABLE.find(PolicySpec("lag", lag))
    if lag != "4":
        assert str(found) == policy
    assert note == f"lag-{lag} is {found}: {had} words behind on the development set"


@pytest.mark.parametrize("lag", ["0", "1", "7.8", "99"])
def test_a_lag_outside_of_the_table(lag: str) -> None:
    with pytest.raises(UserError, match=rf"^policy lag-{lag}: the lags of this agent are from 1.3 to 7.7 words$"):
        TABLE.find(PolicySpec("lag", lag))
    for inside in ("1.3", "7.7"):
        TABLE.find(PolicySpec("lag", inside))


def test_names() -> None:
    for name, canonical in (("lag-3", "lag-3"), ("lag-3.0", "lag-3"), ("lag-2.50", "lag-2.5"), ("lag-0", "lag-0")):
        assert str(PolicySpec.parse(name)) == canonical
    for name in ("lag", "lag-", "lag-x", "lag--1", "lag-1e3", "lag-nan", "lag-1234", "lag-٣"):
        with pytest.raises(UserError, match="must end in a number of words, as in lag-3 or"):
            PolicySpec.parse(name)
    with pytest.raises(UserError, match="only agents have a threshold"):
        PolicySpec.parse("lag-3.threshold-0.5")


def test_the_table_lies_beside_the_agent(run: Path) -> None:
    assert TABLE.write(run) == run / "agent" / "lags.json"
    assert read_lags(run) == TABLE
    assert at_lag(run, PolicySpec("lag", "2")) == TABLE.find(PolicySpec("lag", "2"))
    assert at_lag(run, PolicySpec("agent", "3")) == (PolicySpec("agent", "3"), "")


@pytest.mark.parametrize("weights", ["model.safetensors", "agent/model.safetensors"])
def test_a_table_of_other_weights_is_refused(run: Path, weights: str) -> None:
    TABLE.write(run)
    with (run / weights).open("ab") as file:
        file.write(b" ")
    with pytest.raises(UserError, match="measured with other weights, which have changed since; run `whilst cal"):
        read_lags(run)


def test_a_run_without_a_table(run: Path) -> None:
    with pytest.raises(UserError, match="its lags are not known; measure them with `whilst calibrate`"):
        at_lag(run, PolicySpec("lag", "3"))
    assert at_lag(run, PolicySpec("wait", "3")) == (PolicySpec("wait", "3"), "")


DAMAGE = "json", "list", "format", "rows", "no rows", "empty", "a row", "type", "unknown"


@pytest.mark.parametrize("damage", DAMAGE)
def test_a_damaged_table_says_so(run: Path, damage: str) -> None:
    TABLE.write(run)
    path = lags_path(run)
    table = read_json(path)
    if damage == "json":
        path.write_text("{")
    elif damage == "list":
        write_json(path, [])
    elif damage == "type":
        table["rows"][0]["al"] = "much"
        write_json(path, table)
    else:
        rows = {"rows": 3, "no rows": None, "a row": [3]}
        change = {"format": 99} if damage == "format" else {"rows": rows.get(damage, [])}
        write_json(path, table | ({"more": 1} if damage == "unknown" else change))
    with pytest.raises(UserError) as caught:
        read_lags(run)
    assert str(caught.value).startswith(str(path))
    assert "\n" not in str(caught.value)
