"""Configuration of a service: a TOML file, then `TIDELOG_*` variables, then flags.

`load` validates everything once, at start. An invalid value ends the process with exit status 2
and a message that names the setting, the source of its value, the fault and the valid values.
"""

from __future__ import annotations

import difflib
import os
import sys
import tomllib
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any, Literal, Self, TypeVar

from pydantic import AfterValidator, BeforeValidator, Field, ValidationError, model_validator
from pydantic_core import ErrorDetails
from pydantic_settings import (
    BaseSettings,
    NoDecode,
    PydanticBaseSettingsSource,
    SettingsConfigDict,
    SettingsError,
    TomlConfigSettingsSource,
)

from tidelog.caller_limits import CallerLimits

ENVIRONMENT_PREFIX = "TIDELOG_"
EXIT_INVALID_CONFIG = 2

_MAX_PORT = 65_535

METRICS_OFF = "off"
# Without `metrics_listen`, the distance of the metrics port from the service's own port.
METRICS_PORT_OFFSET = 1_000
METRICS_HOST = "127.0.0.1"

_ANY_HOST = frozenset({"0.0.0.0", "[::]", "::", "*"})


def _check_address(value: str) -> str:
    host, separator, port = value.rpartition(":")
    if not separator or not host or not port.isdecimal() or not 0 <= int(port) <= _MAX_PORT:
        raise ValueError(f"{value!r} is not an address; give host:port, such as 127.0.0.1:7500")
    try:
        host.encode("idna")
    except UnicodeError as error:
        raise ValueError(
            f"{value!r} is not an address: no resolver can look up the host {host!r} ({error}); "
            "give host:port, such as 127.0.0.1:7500"
        ) from None
    return value


def _check_metrics_address(value: str) -> str:
    try:
        return value if value == METRICS_OFF else _check_address(value)
    except ValueError:
        raise ValueError(
            f"{value!r} is not an address; give host:port, such as 127.0.0.1:8500, or off"
        ) from None


def split_list(value: Any) -> Any:
    """Splits a list that a variable or a flag gives as one string."""
    return [item.strip() for item in value.split(",")] if isinstance(value, str) else value


Address = Annotated[str, AfterValidator(_check_address)]
MetricsAddress = Annotated[str, AfterValidator(_check_metrics_address)]
# One string with commas in a variable or a flag; a list in the file.
AddressList = Annotated[list[Address], NoDecode, BeforeValidator(split_list)]


class ProgramConfig(BaseSettings):
    """Settings of every program, including programs that end by themselves."""

    model_config = SettingsConfigDict(
        env_prefix=ENVIRONMENT_PREFIX,
        extra="forbid",
        frozen=True,
        cli_kebab_case=True,
        cli_avoid_json=True,
        cli_hide_none_type=True,
    )

    config: Path | None = Field(
        default=None, description="TOML file with any of the other settings, by field name"
    )
    log_level: Literal["debug", "info", "warning", "error"] = Field(
        default="info", description="lowest level that is logged"
    )
    log_format: Literal["json", "console"] = Field(
        default="json", description="json: one object a line; console: for people"
    )

    @property
    def service(self) -> str:
        """The name of the program in log lines, events and metrics: its role and id."""
        raise NotImplementedError

    @classmethod
    def also_in_file(cls) -> frozenset[str]:
        """Settings of other programs that share the file; this program ignores them."""
        return frozenset()

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,  # noqa: ARG003 - the base's signature
        file_secret_settings: PydanticBaseSettingsSource,  # noqa: ARG003
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        # Highest precedence first; pydantic-settings puts the flags before all of them.
        return init_settings, env_settings, _ConfigFileSource(settings_cls)


class ServiceConfig(ProgramConfig):
    """Settings of every service. Subclasses add the fields of each service."""

    cluster: str = Field(
        default="default",
        pattern=r"^[A-Za-z0-9._-]{1,64}$",
        description="name of the cluster: 1 to 64 letters, digits, '.', '_' or '-'; "
        "clusters of different names can share one etcd",
    )
    listen: Address = Field(description="host:port to serve gRPC on")
    advertised_address: Address | None = Field(
        default=None, description="host:port at which others reach this service; default: listen"
    )
    metrics_listen: MetricsAddress | None = Field(
        default=None,
        description="host:port to serve Prometheus metrics on, or off; port 0: any free one; "
        "default: port 1000 above listen's, on 127.0.0.1",
    )

    @property
    def address(self) -> str:
        """The address at which others reach this service."""
        return self.advertised_address or self.listen

    @property
    def metrics_address(self) -> tuple[str, int] | None:
        """Host and port of the metrics server; port 0: any free one; None: metrics are off.

        Without `metrics_listen` the port is 0 if `listen` has port 0, or if the port 1000 above
        that of `listen` does not exist.
        """
        if self.metrics_listen == METRICS_OFF:
            return None
        if self.metrics_listen is not None:
            host, _, port = self.metrics_listen.rpartition(":")
            return host, int(port)
        listen = int(self.listen.rpartition(":")[2])
        above = listen + METRICS_PORT_OFFSET if listen else 0
        return METRICS_HOST, above if above <= _MAX_PORT else 0


class RegisteredConfig(ServiceConfig):
    """Settings of a service that registers in etcd: a broker or a controller.

    Clients and other services find its addresses in the registration.
    """

    etcd_endpoints: AddressList = Field(
        default=["127.0.0.1:2379"],
        min_length=1,
        description="host:port of each etcd member, separated by commas",
    )
    lease_ttl_seconds: int = Field(
        default=3,
        ge=2,
        le=60,
        description="seconds after which etcd deletes the registration of a service that sends "
        "no keep-alive",
    )
    state_changes_topic: bool = Field(
        default=True,
        description="whether state changes are written to the topic __state_changes, which the "
        "active controller creates",
    )
    state_changes_queue_events: int = Field(
        default=20_000,
        ge=1,
        le=1_000_000,
        description="maximum number of state changes that wait for that topic; further ones are "
        "only logged and counted",
    )
    max_client_requests: int = Field(
        default=3_584,
        ge=1,
        le=3_584,
        description="maximum number of concurrent requests of clients, long polls included; "
        "further ones are rejected with TOO_MANY_REQUESTS. Requests of brokers and controllers "
        "do not count",
    )
    max_requests_per_client: int = Field(
        default=2_048,
        ge=1,
        le=3_584,
        description="maximum number of concurrent requests of one client address",
    )
    max_connections_per_client: int = Field(
        default=1_024,
        ge=1,
        le=3_584,
        description="maximum number of connections of one client address; idle ones above it are "
        "closed",
    )
    external_listen: Address | None = Field(
        default=None,
        description="host:port to serve clients on that do not reach advertised_address, such as "
        "those outside the brokers' network; they get external addresses; default: none",
    )
    external_advertised_address: Address | None = Field(
        default=None,
        description="host:port at which such clients reach this service; default: external_listen",
    )

    @property
    def caller_limits(self) -> CallerLimits:
        return CallerLimits(
            self.max_client_requests, self.max_requests_per_client, self.max_connections_per_client
        )

    @property
    def external_address(self) -> str:
        """The address for clients outside the brokers' network.

        Empty: the same as for all others.
        """
        return self.external_advertised_address or self.external_listen or ""

    @model_validator(mode="after")
    def _can_be_reached(self) -> Self:
        if self.advertised_address is None and _is_any_host(self.listen):
            raise ValueError(
                f"listen is {self.listen}, which is no address for others to use; set "
                "advertised_address to the host:port at which they reach this service"
            )
        return self

    @model_validator(mode="after")
    def _can_be_reached_from_outside(self) -> Self:
        external = self.external_listen
        if external is None:
            if self.external_advertised_address is not None:
                raise ValueError(
                    f"external_advertised_address is {self.external_advertised_address}, and "
                    "nothing listens for it; set external_listen to the host:port to serve on"
                )
            return self
        if external == self.listen:
            raise ValueError(
                f"external_listen and listen are both {external}; give each a port of its own"
            )
        if external.endswith(":0"):
            raise ValueError(f"external_listen is {external}; give it a port that others can know")
        if self.external_advertised_address is None and _is_any_host(external):
            raise ValueError(
                f"external_listen is {external}, which is no address for others to use; set "
                "external_advertised_address to the host:port at which clients reach this service"
            )
        return self


def _is_any_host(address: str) -> bool:
    return address.rpartition(":")[0] in _ANY_HOST


class _ConfigFileSource(PydanticBaseSettingsSource):
    """The TOML file. The flag or the variable that names it has to be read first."""

    def get_field_value(self, field: Any, field_name: str) -> tuple[Any, str, bool]:
        raise NotImplementedError("this source is read as a whole")

    def __call__(self) -> dict[str, Any]:
        path = self.current_state.get("config")
        if path is None:
            return {}
        path = Path(path)
        if not path.is_file():
            raise _ConfigFileError(
                f"there is no configuration file {path}; give a TOML file's path"
            )
        try:
            settings = TomlConfigSettingsSource(self.settings_cls, path)()
        except (OSError, tomllib.TOMLDecodeError) as error:
            raise _ConfigFileError(
                f"the configuration file {path} cannot be read as TOML: {error}"
            ) from error
        assert issubclass(self.settings_cls, ProgramConfig)
        others = self.settings_cls.also_in_file() - self.settings_cls.model_fields.keys()
        return {name: value for name, value in settings.items() if name not in others}


class _ConfigFileError(Exception):
    """The file does not exist or is not TOML."""


ConfigT = TypeVar("ConfigT", bound=ProgramConfig)


def load(config_class: type[ConfigT], argv: Sequence[str], program: str = "") -> ConfigT:
    """Returns the validated configuration.

    Exits with status 2 if the configuration is not valid, and with 0 after `--help`.

    - `program`: the name in messages; default: the package of `config_class`.
    """
    program = program or config_class.__module__.partition(".")[0]
    try:
        return config_class(
            _cli_parse_args=tuple(argv),
            _cli_prog_name=program,
        )  # type: ignore[call-arg]  # required fields come from the sources
    except ValidationError as error:
        problems = [_explain(config_class, argv, detail) for detail in error.errors()]
    except _ConfigFileError as error:
        problems = [str(error)]
    except SettingsError as error:
        problems = [f"the configuration cannot be read: {error}"]
    for problem in problems:
        sys.stderr.write(f"{program}: {problem}\n")
    raise SystemExit(EXIT_INVALID_CONFIG)


def flag(field_name: str) -> str:
    return "--" + field_name.replace("_", "-")


def _explain(config_class: type[ProgramConfig], argv: Sequence[str], detail: ErrorDetails) -> str:
    reason = detail["msg"].removeprefix("Value error, ")
    if not detail["loc"]:
        return f"the settings do not fit together: {reason}"
    name = str(detail["loc"][0])
    if detail["type"] == "extra_forbidden":
        return _explain_unknown(config_class, name)
    description = config_class.model_fields[name].description
    if detail["type"] == "missing":
        return (
            f"{name} is not set ({description}); set it in the file, "
            f"as {ENVIRONMENT_PREFIX}{name.upper()} or by {flag(name)}"
        )
    origin = _origin(name, argv)
    return (
        f"{name} = {detail['input']!r} (from {origin}) is not valid: {reason}. It is: {description}"
    )


def _explain_unknown(config_class: type[ProgramConfig], name: str) -> str:
    close = difflib.get_close_matches(name, config_class.model_fields, n=1)
    known = ", ".join(sorted(config_class.model_fields))
    hint = f"did you mean {close[0]}?" if close else f"settings are: {known}"
    return f"the configuration file sets {name}, which does not exist; {hint}"


def _origin(name: str, argv: Sequence[str]) -> str:
    """Returns the source of the value, by the order of precedence."""
    if any(argument.split("=", 1)[0] == flag(name) for argument in argv):
        return f"the flag {flag(name)}"
    variable = ENVIRONMENT_PREFIX + name.upper()
    if any(present.upper() == variable for present in os.environ):
        return f"the variable {variable}"
    return "the configuration file"
