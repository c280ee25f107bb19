import json
from pathlib import Path

from tidelog_runtime.local.cluster_file import (
    BrokerPart,
    ClusterFile,
    ControllerPart,
    GatewayPart,
)
from tidelog_runtime.local.prometheus_targets import TARGETS_FILE, write_targets


def test_every_part_with_metrics_is_a_target_labelled_with_cluster_and_instance(
    tmp_path: Path,
) -> None:
    cluster = ClusterFile(
        cluster="sea",
        etcd="127.0.0.1:2379",
        controllers=[ControllerPart(1, "127.0.0.1:7401", None, "127.0.0.1:8401")],
        brokers=[
            BrokerPart(1, "127.0.0.1:7501", 17, "/data/1", "127.0.0.1:8501"),
            BrokerPart(2, "127.0.0.1:7502", 18, "/data/2", ""),
        ],
        gateway=GatewayPart("127.0.0.1:7600", 19),
    )

    write_targets(cluster, tmp_path)

    assert json.loads((tmp_path / TARGETS_FILE).read_text()) == [
        {
            "targets": ["127.0.0.1:8401"],
            "labels": {"cluster": "sea", "service": "controller-1"},
        },
        {"targets": ["127.0.0.1:8501"], "labels": {"cluster": "sea", "service": "broker-1"}},
        {"targets": ["127.0.0.1:7600"], "labels": {"cluster": "sea", "service": "admin-api"}},
    ]
