package example;

import static java.util.concurrent.TimeUnit.MILLISECONDS;
import static java.util.concurrent.TimeUnit.SECONDS;

import io.grpc.ManagedChannel;
import io.grpc.ManagedChannelBuilder;
import io.grpc.StatusRuntimeException;
import java.util.ArrayList;
import java.util.Collections;
import java.util.HashMap;
import java.util.LinkedHashSet;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.ThreadLocalRandom;
import tidelog.v1.Broker.BrokerEndpoint;
import tidelog.v1.Broker.MetadataRequest;
import tidelog.v1.Broker.TopicMetadata;
import tidelog.v1.BrokerServiceGrpc;
import tidelog.v1.BrokerServiceGrpc.BrokerServiceBlockingStub;
import tidelog.v1.Errors.Error;
import tidelog.v1.Errors.ErrorCode;
import tidelog.v1.Errors.LeaderHint;

/** Follows the leaders of one topic's partitions. */
final class Cluster {
  private static final int MAX_MESSAGE_BYTES = 64 << 20; // gRPC's own 4 MiB are less than a batch
  private static final long METADATA_TIMEOUT_MS = 2_000;
  private static final long CALL_TIMEOUT_MS = 10_000; // more than a leader waits for its replicas
  private static final long RETRY_FOR_MS = 60_000;
  private static final int METADATA_ROUNDS = 20;
  private static final long MIN_PAUSE_MS = 50;
  private static final long MAX_PAUSE_MS = 500;

  /** What errors.proto calls retriable, of all that a client's requests may be answered with. */
  private static final Set<ErrorCode> RETRIABLE =
      Set.of(
          ErrorCode.ERROR_CODE_REQUEST_TIMED_OUT,
          ErrorCode.ERROR_CODE_UNKNOWN_TOPIC_OR_PARTITION,
          ErrorCode.ERROR_CODE_UNKNOWN_TOPIC_ID,
          ErrorCode.ERROR_CODE_NOT_LEADER,
          ErrorCode.ERROR_CODE_LEADER_NOT_AVAILABLE,
          ErrorCode.ERROR_CODE_FENCED_LEADER_EPOCH,
          ErrorCode.ERROR_CODE_UNKNOWN_LEADER_EPOCH,
          ErrorCode.ERROR_CODE_LEADER_CHANGED,
          ErrorCode.ERROR_CODE_NOT_ENOUGH_REPLICAS,
          ErrorCode.ERROR_CODE_OFFSET_NOT_AVAILABLE,
          ErrorCode.ERROR_CODE_CORRUPT_BATCH,
          ErrorCode.ERROR_CODE_OUT_OF_ORDER_SEQUENCE,
          ErrorCode.ERROR_CODE_STORAGE_ERROR);

  /** Of one partition: a broker (-1: none), in one epoch of its leadership. */
  record Leader(int brokerId, int epoch) {}

  /** One call. It may be made twice, so that has to do no harm; throws RejectedException. */
  interface Call<T> {
    T to(BrokerServiceBlockingStub broker);
  }

  interface CallToLeader<T> {
    T to(BrokerServiceBlockingStub broker, Leader leader);
  }

  /** An answer that has an error. */
  static final class RejectedException extends RuntimeException {
    private final Error error;

    RejectedException(Error error) {
      super(error.getCode() + ": " + error.getMessage());
      this.error = error;
    }
  }

  final String topic;
  private final List<String> bootstrap;
  private final Map<String, ManagedChannel> channels = new HashMap<>();
  private final Map<Integer, String> addresses = new HashMap<>();
  private final List<Leader> leaders = new ArrayList<>();
  private String topicId = "";
  private int turn;

  Cluster(List<String> bootstrap, String topic) throws InterruptedException {
    this.bootstrap = bootstrap;
    this.topic = topic;
    refresh();
  }

  synchronized String topicId() {
    return topicId;
  }

  /** Of the topic, as it was when it was first asked for. */
  synchronized int partitions() {
    return leaders.size();
  }

  /**
   * Calls the present leader of a partition until the answer is one that another try would not
   * change.
   */
  <T> T ask(int partition, CallToLeader<T> call) throws InterruptedException {
    RuntimeException last = new IllegalStateException("the partition has no leader");
    long pause = MIN_PAUSE_MS;
    long giveUp = System.nanoTime() + MILLISECONDS.toNanos(RETRY_FOR_MS);
    while (System.nanoTime() < giveUp) {
      Leader leader = leader(partition);
      String address = address(leader.brokerId());
      if (address != null) {
        try {
          return call.to(broker(address, CALL_TIMEOUT_MS), leader);
        } catch (StatusRuntimeException failure) {
          if (isFinal(failure)) {
            throw failure;
          }
          last = failure;
        } catch (RejectedException rejection) {
          if (!RETRIABLE.contains(rejection.error.getCode())) {
            throw rejection;
          }
          last = rejection;
          if (rejection.error.hasLeader() && follow(partition, rejection.error.getLeader())) {
            continue; // the broker has named the present leader
          }
        }
      }
      Thread.sleep(ThreadLocalRandom.current().nextLong(pause / 2, pause));
      pause = Math.min(2 * pause, MAX_PAUSE_MS);
      try {
        refresh();
      } catch (StatusRuntimeException | RejectedException failure) {
        last = failure;
      }
    }
    throw new IllegalStateException(
        "partition " + partition + ": given up after " + RETRY_FOR_MS + " ms", last);
  }

  /** Calls one broker after another until one answers without an error. */
  <T> T askAny(Call<T> call) throws InterruptedException {
    RuntimeException last = null;
    for (int round = 0; round < METADATA_ROUNDS; round++) {
      for (String address : candidates()) {
        try {
          return call.to(broker(address, METADATA_TIMEOUT_MS));
        } catch (StatusRuntimeException | RejectedException failure) {
          // This broker may only be behind. An answer explains more than brokers that are gone.
          if (failure instanceof RejectedException || !(last instanceof RejectedException)) {
            last = failure;
          }
        }
      }
      Thread.sleep(2 * MIN_PAUSE_MS);
    }
    throw last;
  }

  /** Throws RejectedException for an error that is set. */
  static void check(boolean isSet, Error error) {
    if (isSet) {
      throw new RejectedException(error);
    }
  }

  private void refresh() throws InterruptedException {
    var request = MetadataRequest.newBuilder().addTopics(topic).build();
    var answer =
        askAny(
            broker -> {
              var found = broker.metadata(request);
              check(found.getTopics(0).hasError(), found.getTopics(0).getError());
              return found;
            });
    apply(answer.getBrokersList(), answer.getTopics(0));
  }

  private synchronized void apply(List<BrokerEndpoint> brokers, TopicMetadata metadata) {
    brokers.forEach(broker -> addresses.put(broker.getBrokerId(), broker.getAddress()));
    if (leaders.isEmpty()) {
      topicId = metadata.getTopicId();
      leaders.addAll(Collections.nCopies(metadata.getPartitionCount(), new Leader(-1, -1)));
    }
    for (var partition : metadata.getPartitionsList()) {
      // Another broker may have sent a newer one: epochs only grow, within one topic.
      int index = partition.getPartition();
      if (metadata.getTopicId().equals(topicId)
          && index < leaders.size()
          && partition.getLeaderEpoch() >= leaders.get(index).epoch()) {
        leaders.set(index, new Leader(partition.getLeader(), partition.getLeaderEpoch()));
      }
    }
  }

  /** Takes a leader that another broker has named; false: it is not newer. */
  private synchronized boolean follow(int partition, LeaderHint hint) {
    if (hint.getLeaderEpoch() <= leaders.get(partition).epoch()) {
      return false;
    }
    addresses.put(hint.getBrokerId(), hint.getAddress());
    leaders.set(partition, new Leader(hint.getBrokerId(), hint.getLeaderEpoch()));
    return true;
  }

  private synchronized Leader leader(int partition) {
    return leaders.get(partition);
  }

  private synchronized String address(int brokerId) {
    return addresses.get(brokerId);
  }

  /** All that are known, each time with another one first. */
  private synchronized List<String> candidates() {
    var known = new LinkedHashSet<>(bootstrap);
    known.addAll(addresses.values());
    var candidates = new ArrayList<>(known);
    Collections.rotate(candidates, turn++);
    return candidates;
  }

  private synchronized BrokerServiceBlockingStub broker(String address, long timeoutMs) {
    ManagedChannel channel =
        channels.computeIfAbsent(
            address,
            target ->
                ManagedChannelBuilder.forTarget(target)
                    .usePlaintext()
                    .maxInboundMessageSize(MAX_MESSAGE_BYTES)
                    .keepAliveTime(10, SECONDS)
                    .keepAliveTimeout(5, SECONDS)
                    .build());
    // A broker that restarts may lead at once: gRPC's own pauses grow to two minutes.
    channel.resetConnectBackoff();
    return BrokerServiceGrpc.newBlockingStub(channel).withDeadlineAfter(timeoutMs, MILLISECONDS);
  }

  /**
   * A broker understood, and would say the same again. After any other status there was no answer,
   * and what was asked may have been done all the same.
   */
  private static boolean isFinal(StatusRuntimeException failure) {
    return switch (failure.getStatus().getCode()) {
      case INVALID_ARGUMENT,
              FAILED_PRECONDITION,
              OUT_OF_RANGE,
              UNIMPLEMENTED,
              PERMISSION_DENIED,
              UNAUTHENTICATED ->
          true;
      default -> false;
    };
  }
}
