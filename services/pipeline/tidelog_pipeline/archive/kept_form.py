"""The form of values that an archive stores in two files of its state directory.

Without it, a writer could use another form, and a reader could compare with another one.
"""

from __future__ import annotations

from tidelog.spark.option_values import OptionError
from tidelog_pipeline.archive.archive_log import ArchiveLog
from tidelog_pipeline.archive.value_form import ValueForm, form_from_json, form_to_json
from tidelog_pipeline.errors import JobError
from tidelog_pipeline.storage.directory import Directory

FORM, COPY = "form.json", "form.copy.json"


def kept_form(log: ArchiveLog) -> ValueForm | None:
    """Returns the form of a loaded log; None: nothing was archived yet.

    Raises `OptionError` if neither file can be read, and `JobError` if both are lost.
    """
    problem: OptionError | None = None
    for name in (FORM, COPY):
        try:
            form = _form_in(log.own, name)
        except OptionError as error:
            problem = problem or error
            continue
        if form is not None:
            return form
    if problem is not None:
        raise problem
    if log.state.number > 0:
        raise JobError(
            f"{log.own.at(FORM)} and {COPY} beside it are missing, which say what form the values "
            "of this archive have: restore one of them from a backup of the state directory"
        )
    return None


def keep_form(own: Directory, form: ValueForm) -> None:
    """Writes the missing and damaged ones of the two files; for the writer only."""
    for name in (FORM, COPY):
        try:
            is_there = _form_in(own, name) is not None
        except OptionError:
            own.remove(name)
            is_there = False
        if not is_there:
            own.create(name, form_to_json(form))


def _form_in(own: Directory, name: str) -> ValueForm | None:
    """Returns None if the file does not exist."""
    text = own.read(name)
    return None if text is None else form_from_json(text, str(own.at(name)))
