/** Writes to a topic of Tidelog, and reads it. README.md says how. */
import { createInterface } from "node:readline";
import { setImmediate } from "node:timers/promises";
import { parseArgs } from "node:util";
import type { Batch__Output } from "../generated/tidelog/v1/Batch";
import type { FetchResponse__Output } from "../generated/tidelog/v1/FetchResponse";
import type { InitProducerIdResponse__Output } from "../generated/tidelog/v1/InitProducerIdResponse";
import type { ListOffsetsResponse__Output } from "../generated/tidelog/v1/ListOffsetsResponse";
import type { OffsetPosition } from "../generated/tidelog/v1/OffsetPosition";
import type { ProduceRequest } from "../generated/tidelog/v1/ProduceRequest";
import type { ProduceResponse__Output } from "../generated/tidelog/v1/ProduceResponse";
import { CODECS, type CodecName, crc32c, loadCodecs, open, type Rec, seal } from "./batch";
import { check, Cluster } from "./cluster";

const USAGE = `usage: produce TOPIC --brokers HOST:PORT[,...] [--compression none|gzip|lz4|zstd]
       consume TOPIC --brokers HOST:PORT[,...] [--until-end]`;
const BATCH_RECORDS = 1000;
const BATCH_BYTES = 64 << 10;
const REPLICA_WAIT_MS = 5_000;
const FETCH_WAIT_MS = 500;
const FETCH_BYTES = 1 << 20;
const SEQUENCES = 2 ** 31;
// One character is one byte, so that all bytes pass through unchanged.
const BYTES = "latin1";

async function main(): Promise<void> {
  const { positionals, values } = parseArgs({
    allowPositionals: true,
    options: {
      brokers: { type: "string", default: "127.0.0.1:7501" },
      compression: { type: "string", default: "zstd" },
      "until-end": { type: "boolean", default: false },
    },
  });
  const [command, topic] = positionals;
  if (positionals.length !== 2 || !["produce", "consume"].includes(command) || !(values.compression! in CODECS)) {
    throw new Error(USAGE);
  }
  await loadCodecs();
  const cluster = await Cluster.open(values.brokers!.split(","), topic);
  if (command === "produce") await produce(cluster, values.compression as CodecName);
  else await consume(cluster, values["until-end"]!);
  cluster.close();
}

/**
 * Reads "key:value" lines, or values alone, and prints each record once it is acknowledged. Each
 * partition has a sender, with one batch on its way at a time: what comes meanwhile is the next
 * batch. Records of one key stay in order.
 */
async function produce(cluster: Cluster, codec: CodecName): Promise<void> {
  const producer = await cluster.askAny(async (broker, call) => {
    const answer = await call<InitProducerIdResponse__Output>((options, done) =>
      broker.initProducerId({}, options, done),
    );
    check(answer.error);
    return answer;
  });
  const senders = cluster.partitions.map((partition) => new Sender(cluster, partition, codec, producer));
  let count = 0;
  for await (const line of createInterface({ input: process.stdin.setEncoding(BYTES) })) {
    const colon = line.indexOf(":");
    const key = colon < 0 ? null : Buffer.from(line.slice(0, colon), BYTES);
    const value = Buffer.from(line.slice(colon + 1), BYTES);
    const partition = (key ? crc32c(key) : count++) % senders.length;
    await senders[partition].add({ key, value });
  }
  await Promise.all(senders.map((sender) => sender.flush()));
}

class Sender {
  private readonly queue: Rec[] = [];
  private running: Promise<void> | undefined;
  private sequence = 0;

  constructor(
    private readonly cluster: Cluster,
    private readonly partition: number,
    private readonly codec: CodecName,
    private readonly producer: InitProducerIdResponse__Output,
  ) {}

  /** Waits only where as many wait already as one batch takes. */
  async add(record: Rec): Promise<void> {
    this.queue.push(record);
    this.running ??= this.run().catch(fail);
    if (this.queue.length >= BATCH_RECORDS) await this.running;
  }

  async flush(): Promise<void> {
    await this.running;
  }

  private async run(): Promise<void> {
    await setImmediate(); // lets what has been read already come into the first batch
    while (this.queue.length > 0) {
      let bytes = 0;
      let count = 0;
      while (count < Math.min(this.queue.length, BATCH_RECORDS) && bytes < BATCH_BYTES) {
        const { key, value } = this.queue[count++];
        bytes += (key?.length ?? 0) + (value?.length ?? 0);
      }
      await this.send(this.queue.splice(0, count));
    }
    this.running = undefined;
  }

  private async send(records: Rec[]): Promise<void> {
    const { topic, topicId } = this.cluster;
    // Sealed once: by its producer id and sequence the brokers know it when it comes again.
    const batch = seal(records, this.codec, this.producer, this.sequence);
    const request: ProduceRequest = {
      acks: "ACKS_ALL",
      timeoutMs: REPLICA_WAIT_MS,
      partitions: [{ topic, partition: this.partition, topicId, batches: [batch] }],
    };
    const offset = await this.cluster.ask(this.partition, async (broker, call) => {
      const answer = await call<ProduceResponse__Output>((options, done) => broker.produce(request, options, done));
      const result = answer.partitions[0];
      // DUPLICATE_SEQUENCE: it is written, and where is not remembered; the offset is -1.
      if (result.error?.code !== "ERROR_CODE_DUPLICATE_SEQUENCE") check(result.error);
      return BigInt(result.baseOffset);
    });
    show(this.partition, offset, records);
    this.sequence = (this.sequence + records.length) % SEQUENCES;
  }
}

/** Prints every record, from the earliest on. */
async function consume(cluster: Cluster, untilEnd: boolean): Promise<void> {
  await Promise.all(
    cluster.partitions.map(async (partition) => {
      let from = await find(cluster, partition, "OFFSET_POSITION_EARLIEST");
      const to = untilEnd ? await find(cluster, partition, "OFFSET_POSITION_LATEST") : null;
      while (to === null || from < to) from = await fetch(cluster, partition, from);
    }),
  );
}

/** Prints the records from an offset on that one answer has; gives the next offset. */
async function fetch(cluster: Cluster, partition: number, from: bigint): Promise<bigint> {
  const { topic, topicId } = cluster;
  const batches: Batch__Output[] = await cluster.ask(partition, async (broker, call, leader) => {
    const request = {
      maxWaitMs: FETCH_WAIT_MS,
      minBytes: 1,
      maxBytes: FETCH_BYTES,
      partitions: [
        {
          topic,
          partition,
          topicId,
          // A deposed leader learns of it by the epoch, and rejects the request.
          currentLeaderEpoch: leader.epoch,
          fetchOffset: String(from),
          maxBytes: FETCH_BYTES,
        },
      ],
    };
    const answer = await call<FetchResponse__Output>((options, done) => broker.fetch(request, options, done));
    check(answer.partitions[0].error);
    return answer.partitions[0].batches;
  });
  for (const batch of batches) {
    const records = open(batch);
    const base = BigInt(batch.header!.baseOffset);
    if (records.length > 0) show(partition, from, records.slice(Number(from - base))); // it may begin below
    from = base + BigInt(batch.header!.recordCount);
  }
  return from;
}

function find(cluster: Cluster, partition: number, position: OffsetPosition): Promise<bigint> {
  const { topic, topicId } = cluster;
  return cluster.ask(partition, async (broker, call, leader) => {
    const request = { partitions: [{ topic, partition, topicId, currentLeaderEpoch: leader.epoch, position }] };
    const answer = await call<ListOffsetsResponse__Output>((options, done) =>
      broker.listOffsets(request, options, done),
    );
    check(answer.partitions[0].error);
    return BigInt(answer.partitions[0].offset);
  });
}

/** Prints "partition offset key value", with tabs between; "-" stands for no key. */
function show(partition: number, offset: bigint, records: Rec[]): void {
  const lines = records.map(({ key, value }, i) => {
    const at = offset < 0n ? -1n : offset + BigInt(i);
    return `${partition}\t${at}\t${key?.toString(BYTES) ?? "-"}\t${value?.toString(BYTES) ?? ""}\n`;
  });
  process.stdout.write(lines.join(""), BYTES);
}

function fail(error: unknown): never {
  console.error(error instanceof Error ? error.message : error);
  process.exit(1);
}

main().catch(fail);
