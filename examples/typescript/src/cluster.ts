import { credentials, requestCallback, ServiceError, status } from "@grpc/grpc-js";
import { setTimeout as sleep } from "node:timers/promises";
import type { BrokerEndpoint__Output } from "../generated/tidelog/v1/BrokerEndpoint";
import type { BrokerServiceClient } from "../generated/tidelog/v1/BrokerService";
import type { Error__Output } from "../generated/tidelog/v1/Error";
import type { LeaderHint__Output } from "../generated/tidelog/v1/LeaderHint";
import type { MetadataResponse__Output } from "../generated/tidelog/v1/MetadataResponse";
import type { TopicMetadata__Output } from "../generated/tidelog/v1/TopicMetadata";
import { BrokerService } from "./batch";

const METADATA_TIMEOUT_MS = 2_000;
const CALL_TIMEOUT_MS = 10_000; // more than a leader is asked to wait for its replicas
const RETRY_FOR_MS = 60_000;
const METADATA_ROUNDS = 20;
const MIN_PAUSE_MS = 50;
const MAX_PAUSE_MS = 500;

const CHANNEL_OPTIONS = {
  "grpc.max_receive_message_length": 64 << 20, // gRPC's own 4 MiB are less than a batch may have
  // A broker that restarts may lead at once, so it is looked for often.
  "grpc.initial_reconnect_backoff_ms": MIN_PAUSE_MS,
  "grpc.max_reconnect_backoff_ms": MAX_PAUSE_MS,
  "grpc.keepalive_time_ms": 10_000,
  "grpc.keepalive_timeout_ms": 5_000,
};

/** What errors.proto calls retriable, of all that a client's requests may be answered with. */
const RETRIABLE = new Set<string>([
  "ERROR_CODE_REQUEST_TIMED_OUT",
  "ERROR_CODE_UNKNOWN_TOPIC_OR_PARTITION",
  "ERROR_CODE_UNKNOWN_TOPIC_ID",
  "ERROR_CODE_NOT_LEADER",
  "ERROR_CODE_LEADER_NOT_AVAILABLE",
  "ERROR_CODE_FENCED_LEADER_EPOCH",
  "ERROR_CODE_UNKNOWN_LEADER_EPOCH",
  "ERROR_CODE_LEADER_CHANGED",
  "ERROR_CODE_NOT_ENOUGH_REPLICAS",
  "ERROR_CODE_OFFSET_NOT_AVAILABLE",
  "ERROR_CODE_CORRUPT_BATCH",
  "ERROR_CODE_OUT_OF_ORDER_SEQUENCE",
  "ERROR_CODE_STORAGE_ERROR",
]);

/**
 * A broker understood, and would say the same again. After any other status there was no answer,
 * and what was asked may have been done all the same.
 */
const FINAL = new Set<unknown>([
  status.INVALID_ARGUMENT,
  status.FAILED_PRECONDITION,
  status.OUT_OF_RANGE,
  status.UNIMPLEMENTED,
  status.PERMISSION_DENIED,
  status.UNAUTHENTICATED,
]);

/** Of one partition: a broker (-1: none), in one epoch of its leadership. */
export interface Leader {
  brokerId: number;
  epoch: number;
}

/** An answer that has an error. */
class RejectedError extends Error {
  constructor(readonly rejection: Error__Output) {
    super(`${rejection.code}: ${rejection.message}`);
  }
}

/** Throws RejectedError for an error that is set. */
export function check(rejection: Error__Output | null): void {
  if (rejection) throw new RejectedError(rejection);
}

/** One call: `start` is given what is to be passed as its options and its callback. */
export type Caller = <Answer>(
  start: (options: { deadline: number }, done: requestCallback<Answer>) => unknown,
) => Promise<Answer>;

const callWithin =
  (timeoutMs: number): Caller =>
  (start) =>
    new Promise((resolve, reject) =>
      start({ deadline: Date.now() + timeoutMs }, (error, answer) => (error ? reject(error) : resolve(answer!))),
    );

/** Follows the leaders of one topic's partitions. */
export class Cluster {
  topicId = "";
  private readonly clients = new Map<string, BrokerServiceClient>();
  private readonly addresses = new Map<number, string>();
  private readonly leaders: Leader[] = [];
  private turn = 0;

  private constructor(
    private readonly bootstrap: string[],
    readonly topic: string,
  ) {}

  static async open(bootstrap: string[], topic: string): Promise<Cluster> {
    const cluster = new Cluster(bootstrap, topic);
    await cluster.refresh();
    return cluster;
  }

  close(): void {
    for (const client of this.clients.values()) client.close();
  }

  /** Of the topic, as it was when it was opened. */
  get partitions(): number[] {
    return [...this.leaders.keys()];
  }

  /**
   * Calls the present leader of a partition until the answer is one that another try would not
   * change. What a call does has to be harmless when it is done twice.
   */
  async ask<Answer>(
    partition: number,
    ask: (broker: BrokerServiceClient, call: Caller, leader: Leader) => Promise<Answer>,
  ): Promise<Answer> {
    let last: unknown = new Error("the partition has no leader");
    let pauseMs = MIN_PAUSE_MS;
    for (const giveUp = Date.now() + RETRY_FOR_MS; Date.now() < giveUp; ) {
      const leader = this.leaders[partition];
      const address = this.addresses.get(leader.brokerId);
      if (address) {
        try {
          return await ask(this.client(address), callWithin(CALL_TIMEOUT_MS), leader);
        } catch (error) {
          last = error;
          if (error instanceof RejectedError) {
            if (!RETRIABLE.has(error.rejection.code)) throw error;
            if (this.follow(partition, error.rejection.leader)) continue; // it has named the present leader
          } else if (FINAL.has((error as ServiceError).code)) throw error;
        }
      }
      await sleep(pauseMs * (0.5 + Math.random() / 2));
      pauseMs = Math.min(2 * pauseMs, MAX_PAUSE_MS);
      await this.refresh().catch((error) => (last = error));
    }
    throw new Error(`partition ${partition}: given up after ${RETRY_FOR_MS} ms: ${last}`);
  }

  /** Calls one broker after another until one answers without an error. */
  async askAny<Answer>(ask: (broker: BrokerServiceClient, call: Caller) => Promise<Answer>): Promise<Answer> {
    let last: unknown;
    for (let round = 0; round < METADATA_ROUNDS; round++) {
      for (const address of this.candidates()) {
        try {
          return await ask(this.client(address), callWithin(METADATA_TIMEOUT_MS));
        } catch (error) {
          // This broker may only be behind. An answer explains more than brokers that are gone.
          if (error instanceof RejectedError || !(last instanceof RejectedError)) last = error;
        }
      }
      await sleep(2 * MIN_PAUSE_MS);
    }
    throw last;
  }

  private async refresh(): Promise<void> {
    const answer = await this.askAny(async (broker, call) => {
      const metadata = await call<MetadataResponse__Output>((options, done) =>
        broker.metadata({ topics: [this.topic] }, options, done),
      );
      check(metadata.topics[0].error);
      return metadata;
    });
    this.apply(answer.brokers, answer.topics[0]);
  }

  private apply(brokers: BrokerEndpoint__Output[], topic: TopicMetadata__Output): void {
    for (const broker of brokers) this.addresses.set(broker.brokerId, broker.address);
    if (!this.topicId) {
      this.topicId = topic.topicId;
      this.leaders.push(...Array.from({ length: topic.partitionCount }, () => ({ brokerId: -1, epoch: -1 })));
    }
    if (topic.topicId !== this.topicId) return;
    for (const { partition, leader, leaderEpoch } of topic.partitions) {
      // Another broker may have sent a newer one: epochs only grow, within one topic.
      if (partition < this.leaders.length && leaderEpoch >= this.leaders[partition].epoch) {
        this.leaders[partition] = { brokerId: leader, epoch: leaderEpoch };
      }
    }
  }

  /** Takes a leader that another broker has named; false: it is not newer. */
  private follow(partition: number, hint: LeaderHint__Output | null): boolean {
    if (!hint || hint.leaderEpoch <= this.leaders[partition].epoch) return false;
    this.addresses.set(hint.brokerId, hint.address);
    this.leaders[partition] = { brokerId: hint.brokerId, epoch: hint.leaderEpoch };
    return true;
  }

  /** All that are known, each time with another one first. */
  private candidates(): string[] {
    const known = [...new Set([...this.bootstrap, ...this.addresses.values()])];
    const first = this.turn++ % known.length;
    return [...known.slice(first), ...known.slice(0, first)];
  }

  private client(address: string): BrokerServiceClient {
    let client = this.clients.get(address);
    if (!client) {
      client = new BrokerService(address, credentials.createInsecure(), CHANNEL_OPTIONS);
      this.clients.set(address, client);
    }
    return client;
  }
}
