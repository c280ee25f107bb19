"""Configuration: which source takes precedence, and how invalid values are reported."""

from pathlib import Path
from typing import Self

import pytest
from pydantic import Field, model_validator

from tidelog_runtime.config import Address, RegisteredConfig, load


class StoreConfig(RegisteredConfig):
    listen: Address = Field(default="127.0.0.1:7500", description="host:port to serve gRPC on")
    store_id: int = Field(ge=0, description="a number that no other store has")
    data_dir: Path = Field(description="directory that holds the data")

    @model_validator(mode="after")
    def _has_its_own_directory(self) -> Self:
        if self.data_dir == Path("/"):
            raise ValueError("data_dir is the root directory; choose one of its own")
        return self


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "store.toml"
    path.write_text(
        'store_id = 1\ndata_dir = "/file"\netcd_endpoints = ["a:1", "b:2"]\nlease_ttl_seconds = 4\n'
    )
    return path


def error_text(capsys: pytest.CaptureFixture[str], *argv: str) -> str:
    with pytest.raises(SystemExit) as ended:
        load(StoreConfig, argv)
    assert ended.value.code == 2
    message = capsys.readouterr().err
    assert "Traceback" not in message
    return message


def test_the_file_is_read(file: Path) -> None:
    config = load(StoreConfig, ["--config", str(file)])

    assert config.store_id == 1
    assert config.etcd_endpoints == ["a:1", "b:2"]
    assert config.cluster == "default"


def test_a_variable_overrides_the_file(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TIDELOG_DATA_DIR", "/variable")
    monkeypatch.setenv("TIDELOG_ETCD_ENDPOINTS", "c:3, d:4")

    config = load(StoreConfig, ["--config", str(file)])

    assert config.data_dir == Path("/variable")
    assert config.etcd_endpoints == ["c:3", "d:4"]


def test_a_flag_overrides_file_and_variable(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TIDELOG_DATA_DIR", "/variable")

    config = load(
        StoreConfig,
        ["--config", str(file), "--data-dir", "/flag", "--etcd-endpoints", "e:5,f:6"],
    )

    assert config.data_dir == Path("/flag")
    assert config.etcd_endpoints == ["e:5", "f:6"]
    assert config.lease_ttl_seconds == 4


def test_variables_of_other_programs_are_ignored(
    file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TIDELOG_ETCD", "127.0.0.1:2379")

    assert load(StoreConfig, ["--config", str(file)]).store_id == 1


def test_the_advertised_address_defaults_to_the_listening_one(file: Path) -> None:
    argv = ["--config", str(file)]

    assert load(StoreConfig, argv).address == "127.0.0.1:7500"
    assert load(StoreConfig, [*argv, "--advertised-address", "x:1"]).address == "x:1"


@pytest.mark.parametrize(
    ("flags", "address"),
    [
        ([], ("127.0.0.1", 8500)),
        (["--listen", "0.0.0.0:7700", "--advertised-address", "x:1"], ("127.0.0.1", 8700)),
        (["--listen", "127.0.0.1:0"], ("127.0.0.1", 0)),
        (["--listen", "127.0.0.1:65000"], ("127.0.0.1", 0)),
        (["--metrics-listen", "0.0.0.0:9000"], ("0.0.0.0", 9000)),
        (["--metrics-listen", "off"], None),
    ],
)
def test_metrics_default_to_loopback_and_a_port_one_thousand_higher(
    file: Path, flags: list[str], address: tuple[str, int] | None
) -> None:
    assert load(StoreConfig, ["--config", str(file), *flags]).metrics_address == address


def test_an_invalid_metrics_address_is_rejected(
    file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    message = error_text(capsys, "--config", str(file), "--metrics-listen", "on")

    assert "'on' is not an address; give host:port, such as 127.0.0.1:8500, or off" in message


def test_help_lists_every_field_with_description_and_default(
    capsys: pytest.CaptureFixture[str],
) -> None:
    with pytest.raises(SystemExit) as ended:
        load(StoreConfig, ["--help"])

    assert ended.value.code == 0
    shown = " ".join(capsys.readouterr().out.split())
    for name, field in StoreConfig.model_fields.items():
        assert "--" + name.replace("_", "-") in shown
        assert str(field.description) in shown
    assert "(default: 127.0.0.1:7500)" in shown
    assert "directory that holds the data (required)" in shown


def test_a_missing_value_is_named_with_the_ways_to_set_it(
    capsys: pytest.CaptureFixture[str],
) -> None:
    message = error_text(capsys, "--data-dir", "/x")

    assert "store_id is not set (a number that no other store has)" in message
    assert "TIDELOG_STORE_ID" in message
    assert "--store-id" in message


def test_an_out_of_range_value_names_its_source_and_the_range(
    capsys: pytest.CaptureFixture[str], file: Path
) -> None:
    message = error_text(capsys, "--config", str(file), "--lease-ttl-seconds=1")

    assert "lease_ttl_seconds = '1' (from the flag --lease-ttl-seconds)" in message
    assert "greater than or equal to 2" in message


def test_an_invalid_variable_is_named(
    capsys: pytest.CaptureFixture[str], file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TIDELOG_ETCD_ENDPOINTS", "a:1,nowhere")

    message = error_text(capsys, "--config", str(file))

    assert "from the variable TIDELOG_ETCD_ENDPOINTS" in message
    assert "'nowhere' is not an address; give host:port, such as 127.0.0.1:7500" in message


@pytest.mark.parametrize("host", ["a..b", "n" * 64])
def test_an_unresolvable_host_syntax_is_rejected(
    capsys: pytest.CaptureFixture[str], file: Path, host: str
) -> None:
    message = error_text(capsys, "--config", str(file), f"--listen={host}:7500")

    assert f"no resolver can look up the host '{host}'" in message


def test_an_invalid_value_in_the_file_is_named(
    capsys: pytest.CaptureFixture[str], file: Path
) -> None:
    file.write_text('store_id = "one"\ndata_dir = "/x"\n')

    message = error_text(capsys, "--config", str(file))

    assert "store_id = 'one' (from the configuration file)" in message


def test_an_unknown_key_in_the_file_is_answered_with_the_nearest(
    capsys: pytest.CaptureFixture[str], file: Path
) -> None:
    file.write_text('store_id = 1\ndata_dri = "/x"\n')

    message = error_text(capsys, "--config", str(file))

    assert "sets data_dri, which does not exist; did you mean data_dir?" in message


def test_an_unknown_flag_is_named(capsys: pytest.CaptureFixture[str], file: Path) -> None:
    assert "--colour" in error_text(capsys, "--config", str(file), "--colour", "red")


def test_a_missing_file_is_named(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    missing = tmp_path / "missing.toml"

    message = error_text(capsys, "--config", str(missing))

    assert f"there is no configuration file {missing}" in message


def test_a_malformed_toml_file_is_named(capsys: pytest.CaptureFixture[str], file: Path) -> None:
    file.write_text("store_id: 1\n")

    message = error_text(capsys, "--config", str(file))

    assert f"{file} cannot be read as TOML" in message


@pytest.mark.parametrize("value", ["7500", "host", ":7500", "host:", "host:port", "host:70000"])
def test_an_invalid_address_is_rejected(
    capsys: pytest.CaptureFixture[str], file: Path, value: str
) -> None:
    assert "host:port" in error_text(capsys, "--config", str(file), "--listen", value)


def test_conflicting_settings_have_the_message_of_the_service(
    capsys: pytest.CaptureFixture[str],
) -> None:
    message = error_text(capsys, "--store-id", "1", "--data-dir", "/")

    assert "do not fit together: data_dir is the root directory; choose one" in message
