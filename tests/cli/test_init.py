"""`cfeval data init`: the config that it writes, and the problems of the data that it reports."""

import numpy as np
import pandas as pd
import pytest
import yaml
from hydra.utils import instantiate
from omegaconf import OmegaConf

from cfeval_cli.cli import data as data_command
from cfeval_cli.cli.own_configs import find_conf_folder
from cfeval_cli.dataset.tabular import TabularData
from cfeval_cli.dataset.text import Text
from cfeval_cli.errors import UserError
from cfeval_cli.settings import compose
from tests.dataset.test_describe import table, write_file


@pytest.fixture
def data(monkeypatch, tmp_path):
    """`cfeval data` in this process, in an empty folder."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("CFEVAL_DATA", raising=False)

    def call(*words):
        data_command.main([str(word) for word in words])

    return call


def loaded(path, folder="data"):
    """The dataset that a config file describes."""
    settings = instantiate(OmegaConf.create(path.read_text()), _convert_="all")
    return settings.load(path.parents[2] / folder, 0)


@pytest.mark.parametrize("file_format", ["csv", "tsv", "semicolons", "parquet"])
def test_config_loads_the_file_in_each_format(data, tmp_path, file_format, capsys):
    write_file(table(), tmp_path / "loans.csv", file_format)
    data("init", "loans.csv", "--label", "default")
    output, file = capsys.readouterr().out, tmp_path / "conf" / "dataset" / "loans.yaml"
    dataset, frame = loaded(file), table()
    assert dataset.classes == ("0", "1") and dataset.name == "loans"
    assert [f.name for f in dataset.features] == [
        "age",
        "income",
        "home",
        "children",
        "score",
        "temperature",
        "seen",
        "price",
    ]
    rows = dataset.decode(dataset.test.codes)
    expected = frame.loc[dataset.test.ids, rows.columns].reset_index(drop=True)
    expected["seen"] = expected["seen"].where(~expected["seen"].isin(["?", "NA"]))
    expected["price"] = expected["price"].str.replace(",", ".").astype(float)
    assert rows["seen"].isna().equals(expected["seen"].isna())
    pd.testing.assert_frame_equal(rows, expected, check_dtype=False)
    assert dataset.test.labels.tolist() == frame.loc[dataset.test.ids, "default"].tolist()
    body = file.read_text()
    for word in (
        "an identifier",
        "one value only",
        "has one value for each class",
        "60 different in 60 rows",
    ):
        assert word in output and word in body
    for word in ("0: 40, 1: 20 of 60 rows", "? , NA".replace(" ,", ","), "children: -9; score: 999"):
        assert word in output
    assert "Written: conf/dataset/loans.yaml" in output and "cfeval run dataset=loans model=estimator" in output


def test_comment_on_suspected_missing_values_is_a_valid_setting(data, tmp_path):
    write_file(table(), tmp_path / "loans.csv", "csv")
    data("init", "loans.csv", "--label", "default")
    file = tmp_path / "conf" / "dataset" / "loans.yaml"
    assert not any(f.missing_code for f in loaded(file).features if f.name in ("children", "score"))
    lines = [line for line in file.read_text().splitlines() if not line.startswith("missing:")]
    file.write_text("\n".join(line.removeprefix("# ") if line.startswith("# missing:") else line for line in lines))
    features = {feature.name: feature for feature in loaded(file).features}
    for name, marker in (("children", -9), ("score", 999)):
        assert features[name].missing_code is not None and marker not in features[name].numbers
    assert features["seen"].missing_code is not None and features["age"].missing_code is None
    assert -9 in features["temperature"].numbers  # where it is a number like others


def test_file_without_header_is_described_by_positions(data, tmp_path):
    rows = ["31,red,4.5,yes", "54,blue,2.5,no", "22,red,8.25,yes", "47,green,1.5,no"] * 25
    (tmp_path / "bare.csv").write_text("\n".join(rows) + "\n")
    data("init", "bare.csv", "--label", "4")
    file = tmp_path / "conf" / "dataset" / "bare.yaml"
    assert yaml.safe_load(file.read_text())["header"] is False
    dataset = loaded(file)
    decoded = dataset.decode(dataset.test.codes)
    decoded_rows = [
        ",".join([*(f"{value:g}" if isinstance(value, float) else str(value) for value in row), dataset.classes[label]])
        for row, label in zip(decoded.itertuples(index=False), dataset.test.labels, strict=True)
    ]
    assert decoded_rows == [rows[i] for i in dataset.test.ids]


def test_first_of_two_columns_with_the_same_name_is_used(data, tmp_path):
    rng = np.random.default_rng(0)
    rows = [",".join(map(str, [*rng.integers(0, 90, 3), rng.choice(["yes", "no"])])) for _ in range(100)]
    (tmp_path / "twice.csv").write_text("\n".join(["age,size,age,paid", *rows]) + "\n")
    data("init", "twice.csv", "--label", "paid")
    file = tmp_path / "conf" / "dataset" / "twice.yaml"
    assert yaml.safe_load(file.read_text())["positions"]
    dataset = loaded(file)
    ages = dataset.decode(dataset.test.codes)["age"].tolist()
    assert ages == [int(rows[i].split(",")[0]) for i in dataset.test.ids]


def test_existing_config_and_packaged_names_are_protected(data, tmp_path, capsys):
    write_file(table(), tmp_path / "loans.csv", "csv")
    write_file(table(), tmp_path / "german.csv", "csv")
    data("init", "loans.csv", "--label", "default")
    file = tmp_path / "conf" / "dataset" / "loans.yaml"
    file.write_text("mine")
    with pytest.raises(UserError, match=r"conf/dataset/loans\.yaml exists.*--force"):
        data("init", "loans.csv", "--label", "default")
    assert file.read_text() == "mine"
    data("init", "loans.csv", "--label", "default", "--force")
    assert file.read_text() != "mine"
    with pytest.raises(UserError, match=r"cfeval has a dataset german of its own .*german\.yaml.* --name my_german$"):
        data("init", "german.csv", "--label", "default")
    data("init", "german.csv", "--label", "default", "--name", "my_german")
    data("init", "german.csv", "--label", "default", "--name", "loans", "--config-dir", "other")
    assert (tmp_path / "other" / "dataset" / "loans.yaml").exists()
    assert sorted(path.name for path in (tmp_path / "conf" / "dataset").iterdir()) == ["loans.yaml", "my_german.yaml"]
    assert "cfeval run --config-dir other dataset=loans" in capsys.readouterr().out


def test_file_may_be_in_the_data_folder_or_elsewhere(data, tmp_path, tmp_path_factory):
    elsewhere = tmp_path_factory.mktemp("elsewhere")
    for place in (tmp_path / "data", tmp_path / "below", elsewhere):
        place.mkdir(exist_ok=True)
        write_file(table(), place / f"{place.name[:5]}.csv", "csv")
    folders = {}
    for file in ("data/data.csv", "below/below.csv", elsewhere / "elsew.csv"):
        data("init", file, "--label", "default")
    for name in ("data", "below", "elsew"):
        path = tmp_path / "conf" / "dataset" / f"{name}.yaml"
        folders[name] = yaml.safe_load(path.read_text())["file"].get("folder")
        assert len(loaded(path).train) == 48
    assert folders == {"data": None, "below": "below", "elsew": str(elsewhere)}
    (tmp_path / "below" / "below.csv").unlink()
    with pytest.raises(UserError, match=r"dataset\.file: there is no file .*below/below\.csv"):
        loaded(tmp_path / "conf" / "dataset" / "below.yaml")
    assert sorted(path.name for path in (tmp_path / "data").iterdir()) == ["data.csv"]  # nothing is fetched for it


@pytest.mark.parametrize("header", [True, False])
def test_texts_are_described(data, tmp_path, header, capsys):
    moods = {1: "Très mauvais, dull!", 5: "Good. Don't miss it"}
    lines = [f"{moods[stars]} {i}\t{stars}" for i in range(20) for stars in moods]
    (tmp_path / "reviews.tsv").write_text("\n".join([*(["review\tstars"] * header), *lines]))
    data("init", "reviews.tsv", "--label", "stars" if header else "2")
    dataset = loaded(tmp_path / "conf" / "dataset" / "reviews.yaml")
    assert dataset.kind == "text" and dataset.classes == ("1", "5") and len(dataset.train) == 32
    messages = {
        text.rsplit(" ", 1)[0]: label for text, label in zip(dataset.train.texts, dataset.train.labels, strict=True)
    }
    assert messages == {"Très mauvais, dull!": 0, "Good. Don't miss it": 1}
    out = capsys.readouterr().out
    assert "each word of a text is a feature" in out and out.endswith("cfeval run dataset=reviews\n")
    long = "\n".join([f"{'word ' * 150}{i}\t{i % 2}" for i in range(20)])
    (tmp_path / "long.tsv").write_text(f"review\tstars\n{long}")
    data("init", "long.tsv", "--label", "stars")
    assert loaded(tmp_path / "conf" / "dataset" / "long.yaml").n_features == 100


STRANGE = ["a b", "no", "1e5", "${k}", "x: y", "# z", "'q'", 'd"d', "é", "[1]", "=1+1", "{b}", "~", "null", "1"]


def test_unusual_names_and_classes_are_read_back(data, tmp_path):
    rng = np.random.default_rng(0)
    frame = pd.DataFrame({name: rng.choice(["u", "v"], 60) for name in STRANGE})
    frame["y y"] = np.resize(["{seed}", "yes: 1"], 60)
    frame.to_csv(tmp_path / "st ran.ge.csv", index=False)
    data("init", "st ran.ge.csv", "--label", "y y")
    dataset = loaded(tmp_path / "conf" / "dataset" / "st_ran_ge.yaml")
    assert [feature.name for feature in dataset.features] == STRANGE
    assert set(dataset.classes) == {"{seed}", "yes: 1"}
    with compose.open_packaged_configs():
        cfg = compose.compose_run(["dataset=st_ran_ge"], find_conf_folder())
    assert list(cfg.dataset.features) == STRANGE
    frame["y y"] = np.resize(["${seed}", "b"], 60)
    frame.to_csv(tmp_path / "worse.csv", index=False)
    with pytest.raises(UserError, match="cannot stand in a config"):
        data("init", "worse.csv", "--label", "y y")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["init"], "name one file"),
        (["init", "a.csv", "b.csv"], "name one file"),
        (
            ["init", "loans.csv"],
            r"--label is missing.*: cfeval data init loans\.csv --label NAME",
        ),
        (["init", "nope.csv", "--label", "y"], r"there is no file nope\.csv"),
        (["init", "loans.csv", "--label", "defalt"], r"no column defalt\. Did you mean default\?"),
        (["init", "loans.csv", "--label", "default", "--name", "../x"], r"--name \.\./x: use letters"),
        (["init", "only.csv", "--label", "default"], "no column that could be a feature"),
        (["init", "few.csv", "--label", "default"], "too few for a split"),
    ],
)
def test_invalid_arguments_write_no_config(data, tmp_path, words, message):
    write_file(table(), tmp_path / "loans.csv", "csv")
    table()[["default", "branch", "note"]].assign(branch=1).to_csv(tmp_path / "only.csv", index=False)
    table()[["default", "age"]][:4].to_csv(tmp_path / "few.csv", index=False)
    (tmp_path / "only.csv").write_text("default,note\n" + "".join(f"{i % 2},n{i}\n" for i in range(20)))
    with pytest.raises(UserError, match=message):
        data(*words)
    assert not (tmp_path / "conf").exists()


def test_folder_that_cannot_be_written_is_named(data, tmp_path):
    write_file(table(), tmp_path / "loans.csv", "csv")
    (tmp_path / "conf").write_text("a file")
    with pytest.raises(UserError, match=r"conf/dataset/loans\.yaml cannot be written"):
        data("init", "loans.csv", "--label", "default")


def test_run_reads_amounts_dates_and_infinite_cells_as_init_does(data, tmp_path, capsys):
    rng = np.random.default_rng(0)
    n_rows = 80
    fees, shares, days = (
        rng.integers(0, 500_000, n_rows) / 100,
        rng.integers(0, 100, n_rows),
        rng.integers(0, 900, n_rows),
    )
    dates = pd.Timestamp("2022-01-01") + pd.to_timedelta(days, unit="D")
    ratio = rng.normal(size=n_rows).round(3).astype(str)
    ratio[7] = "inf"
    frame = pd.DataFrame(
        {
            "fee": [f"${fee:,.2f}" for fee in fees],
            "euro": [f"{fee:,.2f} €".translate(str.maketrans(",.", ".,")) for fee in fees],
            "share": [f"{share}%" for share in shares],
            "start": dates.strftime("%Y-%m-%d"),
            "call": dates.strftime("%m/%d/%Y %H:%M"),
            "ratio": ratio,
            "paid": rng.choice(["yes", "no"], n_rows),
        }
    )
    frame.to_csv(tmp_path / "bills.csv", index=False)
    data("init", "bills.csv", "--label", "paid")
    output, file = capsys.readouterr().out, tmp_path / "conf" / "dataset" / "bills.yaml"
    for line in ("ratio: 1 infinite cell counts as missing ('inf').", "start: dates, read as days since 1970-01-01"):
        assert line in output and f"# {line}" in file.read_text()
    dataset = loaded(file)
    rows, ids = dataset.decode(dataset.train.codes), dataset.train.ids
    np.testing.assert_array_equal(rows["fee"], fees[ids])
    np.testing.assert_array_equal(rows["euro"], fees[ids])
    np.testing.assert_array_equal(rows["share"], shares[ids])
    epoch_days = (dates - pd.Timestamp("1970-01-01")).days.to_numpy()[ids]
    np.testing.assert_array_equal(rows["start"], epoch_days)
    np.testing.assert_array_equal(rows["call"], epoch_days)
    assert rows["ratio"].isna().tolist() == [i == 7 for i in ids] and rows["ratio"].dtype == float
    start = dataset.features[3]
    assert [start.values[code] for code in dataset.train.codes[:, 3]] == [frame["start"][i] for i in ids]


def test_every_setting_of_a_table_can_be_overridden_without_a_plus(data, tmp_path):
    write_file(table(), tmp_path / "loans.csv", "csv")
    data("init", "loans.csv", "--label", "default")
    keys = set(yaml.safe_load((tmp_path / "conf" / "dataset" / "loans.yaml").read_text())) - {"_target_"}
    assert keys == set(TabularData.__dataclass_fields__) - {"reference"}
    words = ["immutable=[home]", "only={age:up}", "split=[0.6,0.2,0.2]", "candidates=8", "missing=[-9]", "header=true"]
    with compose.open_packaged_configs():
        cfg = compose.compose_run(["dataset=loans", *(f"dataset.{word}" for word in words)], find_conf_folder())
    dataset = instantiate(cfg.dataset, _convert_="all").load(tmp_path, 0)
    assert len(dataset.test) == 12
    assert {
        feature.name: feature.allowed_change for feature in dataset.features if feature.allowed_change != "any"
    } == {
        "home": "none",
        "age": "up",
    }


def test_every_setting_of_texts_can_be_overridden_without_a_plus(data, tmp_path):
    lines = [f"{mood} and number {i % 15} of many\t{mood}" for i in range(20) for mood in ("good", "bad")]
    (tmp_path / "reviews.tsv").write_text("\n".join(["review\tmood", *lines]))
    data("init", "reviews.tsv", "--label", "mood")
    keys = set(yaml.safe_load((tmp_path / "conf" / "dataset" / "reviews.yaml").read_text())) - {"_target_"}
    # embedding is a config group: null in the yaml would take the place of one that its defaults list
    assert keys == set(Text.__dataclass_fields__) - {"reference", "embedding"}
    assert "Left out" not in (tmp_path / "conf" / "dataset" / "reviews.yaml").read_text()
    words = ["dataset.search_words=5", "dataset.split=[0.6,0.2,0.2]", "dataset.sample=30", "dataset.max_tokens=4"]
    with compose.open_packaged_configs():
        cfg = compose.compose_run(["dataset=reviews", *words], find_conf_folder())
    dataset = instantiate(cfg.dataset, _convert_="all").load(tmp_path, 0)
    assert (len(dataset.train), dataset.n_features, len(dataset.candidates[0])) == (18, 4, 5)


@pytest.mark.parametrize(
    ("action", "arguments", "foreign_arguments"),
    [
        ("init", ["--label COLUMN", "--text", "--name", "--force", "FILE"], ["--clear", "--into"]),
        ("export", ["--into FILE", "--force"], ["--label", "--clear"]),
        ("cache", ["--clear"], ["--label", "--into", "--force"]),
        ("list", ["--config-dir"], ["--label", "--into", "--force", "--clear"]),
        ("fetch", ["NAME"], ["--label", "--into", "--force", "--clear"]),
        ("verify", ["exit code is 1"], ["--label", "--into", "--force", "--clear"]),
    ],
)
def test_each_action_has_its_own_help_and_refuses_arguments_of_others(
    data, capsys, action, arguments, foreign_arguments
):
    with pytest.raises(SystemExit):
        data(action, "--help")
    output = " ".join(capsys.readouterr().out.split())
    assert output.startswith(f"usage: cfeval data {action} ")
    assert all(word in output for word in arguments) and not any(word in output for word in foreign_arguments)
    with pytest.raises(SystemExit) as error_info:
        data(action, foreign_arguments[0])
    assert error_info.value.code == 2 and f"unrecognized arguments: {foreign_arguments[0]}" in capsys.readouterr().err


def test_the_general_help_names_every_action(data, capsys):
    with pytest.raises(SystemExit):
        data("--help")
    output = capsys.readouterr().out
    assert "  init     Describe your table or texts" in output and "  cache    Show or remove the results" in output
    assert max(map(len, output.splitlines())) <= 80
    with pytest.raises(SystemExit) as error_info:
        data("lst")
    assert error_info.value.code == 2 and "invalid choice: 'lst'" in capsys.readouterr().err
