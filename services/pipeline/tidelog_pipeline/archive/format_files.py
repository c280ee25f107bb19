"""The format of values: the one that a configuration requests, and the one that an archive has."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.errors import ParseException
from pyspark.sql.types import StructType

from tidelog.spark.option_values import OptionError
from tidelog_pipeline.archive.archive_config import ArchivingConfig
from tidelog_pipeline.archive.archive_log import ArchiveLog
from tidelog_pipeline.archive.core.value_format import (
    ValueFormat,
    ValueKind,
    format_from_json,
    format_to_json,
)
from tidelog_pipeline.archive.file_checks import FILE_ERRORS
from tidelog_pipeline.job_command import JobError, first_line
from tidelog_pipeline.storage.directory import Directory, is_fault_of_file

FORM, COPY = "form.json", "form.copy.json"


def stored_format(log: ArchiveLog) -> ValueFormat | None:
    """Returns the format of a loaded log; None: nothing was archived yet.

    Raises `OptionError` if neither file can be read, and `JobError` if both are lost.
    """
    problem: OptionError | None = None
    for name in (FORM, COPY):
        try:
            form = _read_format(log.state_directory, name)
        except OptionError as error:
            problem = problem or error
            continue
        if form is not None:
            return form
    if problem is not None:
        raise problem
    if log.state.number > 0 or not _are_raw(log):
        raise JobError(
            f"{log.state_directory.at(FORM)} and {COPY} beside it are missing, which have the "
            "format of this archive's values: restore one of them from a backup of the state "
            "directory"
        )
    return None


def _are_raw(log: ArchiveLog) -> bool:
    """Returns whether the files of an archive that has lost all of its commits have raw values."""
    for path in log.unnamed_files():
        try:
            schema = pq.read_schema(log.directory.at(path))
        except FILE_ERRORS as error:
            if not is_fault_of_file(error):
                raise
            continue
        if "value" in schema.names and schema.field("value").type != pa.binary():
            return False
    return True


def store_format(directory: Directory, form: ValueFormat) -> None:
    """Writes the missing and damaged ones of the two files; for the writer only."""
    for name in (FORM, COPY):
        try:
            is_there = _read_format(directory, name) is not None
        except OptionError:
            directory.remove(name)
            is_there = False
        if not is_there:
            directory.create(name, format_to_json(form))


def _read_format(directory: Directory, name: str) -> ValueFormat | None:
    """Returns None if the file does not exist."""
    path = directory.at(name)
    try:
        text = directory.read(name)
    except OSError as error:
        if not is_fault_of_file(error):
            raise
        raise OptionError(
            f"{path} cannot be read ({error.strerror}); restore it from a backup of the state "
            "directory"
        ) from error
    return None if text is None else format_from_json(text, str(path))


def configured_format(config: ArchivingConfig) -> ValueFormat | None:
    match config.value:
        case ValueKind.JSON:
            assert config.value_schema is not None, "settings were checked"
            return ValueFormat.of_json(_schema(config.value_schema), config.keep_raw)
        case ValueKind.PROTOBUF:
            assert config.descriptors is not None, "settings were checked"
            assert config.message is not None, "settings were checked"
            descriptors = config.descriptors.read_bytes()
            return ValueFormat.of_protobuf(descriptors, config.message, config.keep_raw)
        case ValueKind.RAW:
            return ValueFormat()
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
            raise ValueError(f"that is a {schema.simpleString()} without names of columns")
    except (ParseException, ValueError, KeyError) as error:
        raise OptionError(
            f'option --value-schema is {text!r}; it must be columns as "id BIGINT, name STRING", '
            f"a file with these, or with the output of StructType.json() ({first_line(error)})"
        ) from error
    return schema


def _is_file(text: str) -> bool:
    try:
        return Path(text).is_file()
    except OSError:  # The text is too long for a name.
        return False
