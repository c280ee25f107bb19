"""Former names of the jobs' modules (see `tidelog.former_modules`)."""

# Modules that kept their name when they moved into a package of their package.
_MOVED = {
    "archive.core": (
        "commit_json",
        "commits",
        "json_values",
        "missing_records",
        "planned_offsets",
        "protobuf_values",
        "ranges",
        "reconciliation",
        "spans",
        "staged_files",
    ),
    "check.stages": (
        "log_stage",
        "reader_stage",
        "sender_stage",
        "timing_stage",
        "value_stage",
    ),
    "state_changes.core": (
        "availability",
        "departures",
        "event_rows",
        "failovers",
        "incarnations",
        "incident",
        "key_changes",
        "table_rows",
    ),
}

_RENAMED = {
    "archive.archive_errors": "archive.core.commit_json",
    "archive.cluster": "archive.cluster_logs",
    "archive.compacting": "archive.compactor",
    "archive.compaction": "archive.core.hours",
    "archive.config": "archive.archive_config",
    "archive.expiring": "archive.hour_expiry",
    "archive.expiry": "archive.core.hours",
    "archive.form_choice": "archive.format_files",
    "archive.job": "archive.archive_job",
    "archive.kept_form": "archive.format_files",
    "archive.offsets_text": "archive.core.ranges",
    "archive.places": "archive.record_locations",
    "archive.reading": "archive.log_reader",
    "archive.reconciling": "archive.reconciler",
    "archive.repairing": "archive.repairer",
    "archive.restoring": "archive.restorer",
    "archive.value_form": "archive.core.value_format",
    "archive.writing": "archive.archive_writer",
    "check.config": "check.check_config",
    "check.job": "check.check_job",
    "check.part_verdict": "check.stages.task_verdict",
    "check.tables": "check.stages.stage_tables",
    "commands": "job_command",
    "config": "pipeline_config",
    "errors": "job_command",
    "lag.config": "lag.lag_config",
    "lag.days": "lag.samples",
    "lag.job": "lag.lag_job",
    "lag.query_places": "lag.sampler",
    "lag.query_progress": "lag.sampler",
    "lag.sampling": "lag.sampler",
    "lag.tables": "lag.rollup_tables",
    "lag.writing": "lag.sample_writer",
    "running": "job_runner",
    "spark_errors": "job_runner",
    "state_changes.config": "state_changes.state_changes_config",
    "state_changes.gathering": "state_changes.incident_reader",
    "state_changes.job": "state_changes.state_changes_job",
    "state_changes.page": "state_changes.core.incident_page",
    "state_changes.pictures": "state_changes.core.charts",
} | {
    f"{package.rpartition('.')[0]}.{name}": f"{package}.{name}"
    for package, names in _MOVED.items()
    for name in names
}

FORMER_MODULES = {
    f"tidelog_pipeline.{former}": f"tidelog_pipeline.{name}" for former, name in _RENAMED.items()
}
