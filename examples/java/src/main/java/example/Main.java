package example;

import com.google.protobuf.ByteString;
import example.Batches.Rec;
import java.io.BufferedReader;
import java.io.BufferedWriter;
import java.io.IOException;
import java.io.InputStreamReader;
import java.io.OutputStreamWriter;
import java.nio.charset.Charset;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.concurrent.ArrayBlockingQueue;
import java.util.concurrent.BlockingQueue;
import java.util.zip.CRC32C;
import tidelog.v1.Broker.Acks;
import tidelog.v1.Broker.FetchPartition;
import tidelog.v1.Broker.FetchRequest;
import tidelog.v1.Broker.InitProducerIdRequest;
import tidelog.v1.Broker.InitProducerIdResponse;
import tidelog.v1.Broker.ListOffsetsPartition;
import tidelog.v1.Broker.ListOffsetsRequest;
import tidelog.v1.Broker.OffsetPosition;
import tidelog.v1.Broker.ProducePartition;
import tidelog.v1.Broker.ProduceRequest;
import tidelog.v1.Errors.ErrorCode;
import tidelog.v1.RecordBatchOuterClass.Batch;
import tidelog.v1.RecordBatchOuterClass.Codec;

/** Writes to a topic of Tidelog, and reads it. README.md says how. */
public final class Main {
  private static final String USAGE =
      """
      usage: produce TOPIC --brokers HOST:PORT[,...] [--compression none|gzip|lz4|zstd]
             consume TOPIC --brokers HOST:PORT[,...] [--until-end]""";
  private static final int BATCH_RECORDS = 1000;
  private static final int BATCH_BYTES = 64 << 10;
  private static final int REPLICA_WAIT_MS = 5_000;
  private static final int FETCH_WAIT_MS = 500;
  private static final int FETCH_BYTES = 1 << 20;
  // One character is one byte, so that all bytes pass through unchanged.
  private static final Charset BYTES = StandardCharsets.ISO_8859_1;
  private static final Map<String, Codec> CODECS =
      Map.of(
          "none", Codec.CODEC_UNSPECIFIED,
          "gzip", Codec.CODEC_GZIP,
          "lz4", Codec.CODEC_LZ4,
          "zstd", Codec.CODEC_ZSTD);
  private static final Rec END = new Rec(null, null);
  private static final BufferedWriter OUTPUT =
      new BufferedWriter(new OutputStreamWriter(System.out, BYTES));

  public static void main(String[] arguments) throws Exception {
    String brokers = "127.0.0.1:7501";
    Codec codec = Codec.CODEC_ZSTD;
    boolean untilEnd = false;
    boolean valid = arguments.length >= 2 && List.of("produce", "consume").contains(arguments[0]);
    for (int i = 2; valid && i < arguments.length; i++) {
      boolean hasValue = i + 1 < arguments.length;
      if (arguments[i].equals("--brokers") && hasValue) {
        brokers = arguments[++i];
      } else if (arguments[i].equals("--compression") && hasValue) {
        codec = CODECS.get(arguments[++i]);
        valid = codec != null;
      } else if (arguments[i].equals("--until-end")) {
        untilEnd = true;
      } else {
        valid = false;
      }
    }
    if (!valid) {
      System.err.println(USAGE);
      System.exit(2);
    }
    try {
      var cluster = new Cluster(List.of(brokers.split(",")), arguments[1]);
      if (arguments[0].equals("produce")) {
        produce(cluster, codec);
      } else {
        consume(cluster, untilEnd);
      }
    } catch (RuntimeException failure) {
      fail(failure);
    }
    System.exit(0);
  }

  /**
   * Reads "key:value" lines, or values alone, and prints each record once it is acknowledged. Each
   * partition has a worker, with one batch on its way at a time: what comes meanwhile is the next
   * batch. Records of one key stay in order.
   */
  private static void produce(Cluster cluster, Codec codec) throws Exception {
    InitProducerIdResponse producer =
        cluster.askAny(
            broker -> {
              var answer = broker.initProducerId(InitProducerIdRequest.getDefaultInstance());
              Cluster.check(answer.hasError(), answer.getError());
              return answer;
            });
    var queues = new ArrayList<BlockingQueue<Rec>>();
    var workers = new ArrayList<Thread>();
    for (int i = 0; i < cluster.partitions(); i++) {
      int partition = i;
      var queue = new ArrayBlockingQueue<Rec>(BATCH_RECORDS); // when it is full, reading waits
      queues.add(queue);
      workers.add(worker(() -> send(cluster, partition, queue, codec, producer)));
    }
    var lines = new BufferedReader(new InputStreamReader(System.in, BYTES));
    int count = 0;
    for (String line; (line = lines.readLine()) != null; count++) {
      int colon = line.indexOf(':');
      if (colon < 0) {
        queues.get(count % queues.size()).put(new Rec(null, ByteString.copyFrom(line, BYTES)));
      } else {
        byte[] key = line.substring(0, colon).getBytes(BYTES);
        var crc = new CRC32C();
        crc.update(key);
        queues
            .get((int) (crc.getValue() % queues.size()))
            .put(
                new Rec(
                    ByteString.copyFrom(key),
                    ByteString.copyFrom(line.substring(colon + 1), BYTES)));
      }
    }
    for (var queue : queues) {
      queue.put(END);
    }
    for (Thread worker : workers) {
      worker.join();
    }
  }

  private static void send(
      Cluster cluster,
      int partition,
      BlockingQueue<Rec> queue,
      Codec codec,
      InitProducerIdResponse producer)
      throws Exception {
    int sequence = 0;
    for (Rec next = queue.take(); next != END; ) {
      var records = new ArrayList<Rec>();
      int size = 0;
      while (next != null && next != END && records.size() < BATCH_RECORDS && size < BATCH_BYTES) {
        records.add(next);
        size += next.value().size() + (next.key() == null ? 0 : next.key().size());
        next = queue.poll();
      }
      // Sealed once: by its producer id and sequence the brokers know it when it comes again.
      Batch batch = Batches.seal(records, codec, producer, sequence);
      var request =
          ProduceRequest.newBuilder()
              .setAcks(Acks.ACKS_ALL)
              .setTimeoutMs(REPLICA_WAIT_MS)
              .addPartitions(
                  ProducePartition.newBuilder()
                      .setTopic(cluster.topic)
                      .setPartition(partition)
                      .setTopicId(cluster.topicId())
                      .addBatches(batch))
              .build();
      long offset =
          cluster.ask(
              partition,
              (broker, leader) -> {
                var result = broker.produce(request).getPartitions(0);
                if (result.getError().getCode() == ErrorCode.ERROR_CODE_DUPLICATE_SEQUENCE) {
                  return -1L; // written, and where is not remembered
                }
                Cluster.check(result.hasError(), result.getError());
                return result.getBaseOffset();
              });
      show(partition, offset, records);
      sequence = (int) (((long) sequence + records.size()) & Integer.MAX_VALUE);
      next = next == null ? queue.take() : next;
    }
  }

  /** Prints every record, from the earliest on; each partition has a worker. */
  private static void consume(Cluster cluster, boolean untilEnd) throws Exception {
    var workers = new ArrayList<Thread>();
    for (int i = 0; i < cluster.partitions(); i++) {
      int partition = i;
      workers.add(
          worker(
              () -> {
                long from = find(cluster, partition, OffsetPosition.OFFSET_POSITION_EARLIEST);
                long to =
                    untilEnd
                        ? find(cluster, partition, OffsetPosition.OFFSET_POSITION_LATEST)
                        : Long.MAX_VALUE;
                while (from < to) {
                  from = fetch(cluster, partition, from);
                }
              }));
    }
    for (Thread worker : workers) {
      worker.join();
    }
  }

  /** Prints the records from an offset on that one answer has; returns the next offset. */
  private static long fetch(Cluster cluster, int partition, long from) throws Exception {
    List<Batch> batches =
        cluster.ask(
            partition,
            (broker, leader) -> {
              var wanted =
                  FetchPartition.newBuilder()
                      .setTopic(cluster.topic)
                      .setPartition(partition)
                      .setTopicId(cluster.topicId())
                      // A deposed leader learns of it by the epoch, and rejects it.
                      .setCurrentLeaderEpoch(leader.epoch())
                      .setFetchOffset(from)
                      .setMaxBytes(FETCH_BYTES);
              var request =
                  FetchRequest.newBuilder()
                      .setMaxWaitMs(FETCH_WAIT_MS)
                      .setMinBytes(1)
                      .setMaxBytes(FETCH_BYTES)
                      .addPartitions(wanted);
              var result = broker.fetch(request.build()).getPartitions(0);
              Cluster.check(result.hasError(), result.getError());
              return result.getBatchesList();
            });
    long next = from;
    for (Batch batch : batches) {
      List<Rec> records = Batches.open(batch);
      long base = batch.getHeader().getBaseOffset();
      if (!records.isEmpty()) { // the first batch may begin below `from`
        show(partition, next, records.subList((int) (next - base), records.size()));
      }
      next = base + batch.getHeader().getRecordCount();
    }
    return next;
  }

  private static long find(Cluster cluster, int partition, OffsetPosition position)
      throws InterruptedException {
    return cluster.ask(
        partition,
        (broker, leader) -> {
          var wanted =
              ListOffsetsPartition.newBuilder()
                  .setTopic(cluster.topic)
                  .setPartition(partition)
                  .setTopicId(cluster.topicId())
                  .setCurrentLeaderEpoch(leader.epoch())
                  .setPosition(position);
          var request = ListOffsetsRequest.newBuilder().addPartitions(wanted).build();
          var result = broker.listOffsets(request).getPartitions(0);
          Cluster.check(result.hasError(), result.getError());
          return result.getOffset();
        });
  }

  /** Prints "partition offset key value", with tabs between; "-" stands for no key. */
  private static void show(int partition, long offset, List<Rec> records) throws IOException {
    synchronized (OUTPUT) {
      for (int i = 0; i < records.size(); i++) {
        Rec record = records.get(i);
        String key = record.key() == null ? "-" : record.key().toString(BYTES);
        String value = record.value() == null ? "" : record.value().toString(BYTES);
        long at = offset < 0 ? -1 : offset + i;
        OUTPUT.write(partition + "\t" + at + "\t" + key + "\t" + value + "\n");
      }
      OUTPUT.flush();
    }
  }

  private interface Work {
    void run() throws Exception;
  }

  private static Thread worker(Work work) {
    var thread =
        new Thread(
            () -> {
              try {
                work.run();
              } catch (Exception failure) {
                fail(failure);
              }
            });
    thread.start();
    return thread;
  }

  private static void fail(Exception failure) {
    String cause = failure.getCause() == null ? "" : " (" + failure.getCause().getMessage() + ")";
    System.err.println(failure.getMessage() + cause);
    System.exit(1);
  }

  private Main() {}
}
