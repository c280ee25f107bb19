"""The synchronous client, for scripts: each object runs an event loop in a thread.

    with SyncProducer("127.0.0.1:7500") as producer:
        delivery = producer.send("sea", b"calm", key=b"north")
        print(delivery.result())

    with SyncConsumer("127.0.0.1:7500") as consumer:
        consumer.assign_topic("sea")
        for record in consumer.poll(timeout_ms=1000):
            print(record.value)

Arguments and errors are those of `Producer`, `Consumer` and `Admin`. Several threads may call one
object; `BackgroundClient` documents its end.
"""

from tidelog.client.sync_admin import SyncAdmin
from tidelog.client.sync_consumer import SyncConsumer
from tidelog.client.sync_producer import SyncProducer

__all__ = ["SyncAdmin", "SyncConsumer", "SyncProducer"]
