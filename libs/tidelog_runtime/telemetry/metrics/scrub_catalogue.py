"""The metrics of the scrub of a broker's logs."""

from __future__ import annotations

from tidelog_runtime.telemetry.metrics.metric import counter, gauge

SCRUB_BYTES = counter(
    "tidelog_scrub_bytes_total",
    "Bytes of the logs that the scrub has checked on the disk, in all incarnations of the broker.",
    "If it is too slow, run `tidelog explain`: it names what bounds it.",
)
SCRUB_PASSES = counter(
    "tidelog_scrub_passes_total",
    "Completed passes of the scrub over all logs.",
    "If there are too few, lower scrub_period_ms.",
)
SCRUB_LAST_PASS = gauge(
    "tidelog_scrub_last_pass_timestamp_seconds",
    "When the last pass of the scrub ended, in seconds since 1970; 0: none has yet.",
    "If it is long ago, run `tidelog explain`: it names why the next pass is overdue.",
)
SCRUB_DAMAGE = counter(
    "tidelog_scrub_damaged_batches_total",
    "Damaged batches that the scrub was the first to find.",
    "Check the disk (dmesg, smartctl), and replace it where this grows.",
)
SCRUB_OVERDUE = gauge(
    "tidelog_scrub_overdue_seconds",
    "By how much a pass of the scrub exceeds scrub_period_ms even as fast as its bounds allow; 0: "
    "not at all, or not by much.",
    "Run `tidelog explain`: it names what bounds the pass. Raise scrub_cpu_percent or "
    "scrub_bytes_per_second.",
)
SCRUB_METRICS = (SCRUB_BYTES, SCRUB_PASSES, SCRUB_LAST_PASS, SCRUB_DAMAGE, SCRUB_OVERDUE)
