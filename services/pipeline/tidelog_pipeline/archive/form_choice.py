"""The form of values that a configuration requests, with its Spark schema."""

from __future__ import annotations

import json
from pathlib import Path

from pyspark.errors import ParseException
from pyspark.sql.types import StructType

from tidelog.spark.option_values import OptionError
from tidelog_pipeline.archive.config import ArchivingConfig
from tidelog_pipeline.archive.value_form import ValueForm, ValueKind


def wanted_form(config: ArchivingConfig) -> ValueForm | None:
    match config.value:
        case ValueKind.JSON:
            assert config.value_schema is not None, "settings were checked"
            return ValueForm.of_json(_schema(config.value_schema), config.keep_raw)
        case ValueKind.PROTOBUF:
            assert config.descriptors is not None, "settings were checked"
            assert config.message is not None, "settings were checked"
            descriptors = config.descriptors.read_bytes()
            return ValueForm.of_protobuf(descriptors, config.message, config.keep_raw)
        case ValueKind.RAW:
            return ValueForm()
    return None


def _schema(text: str) -> StructType:
    """Parses the schema of JSON values: in SQL, or a file with SQL or Spark's JSON.

    Raises `OptionError`.
    """
    if text.endswith((".json", ".ddl", ".sql")) or _is_file(text):
        text = Path(text).read_text()
    try:
        if text.lstrip().startswith("{"):
            return StructType.fromJson(json.loads(text))
        schema = StructType.fromDDL(text)
        if not isinstance(schema, StructType):
            raise ValueError(f"that is a {schema.simpleString()}, without names of columns")
    except (ParseException, ValueError, KeyError) as error:
        raise OptionError(
            f'option --value-schema is {text!r}; it must be columns as "id BIGINT, name STRING", '
            f"a file with these, or with what StructType.json() gives ({_first_line(error)})"
        ) from error
    return schema


def _is_file(text: str) -> bool:
    try:
        return Path(text).is_file()
    except OSError:  # it is too long for a name
        return False


def _first_line(error: Exception) -> str:
    return next(iter(str(error).strip().splitlines()), repr(error))
