package example;

import com.github.luben.zstd.Zstd;
import com.github.luben.zstd.ZstdInputStream;
import com.google.protobuf.ByteString;
import java.io.ByteArrayOutputStream;
import java.io.IOException;
import java.io.InputStream;
import java.io.OutputStream;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.util.ArrayList;
import java.util.List;
import java.util.zip.CRC32C;
import java.util.zip.GZIPInputStream;
import java.util.zip.GZIPOutputStream;
import net.jpountz.lz4.LZ4FrameInputStream;
import net.jpountz.lz4.LZ4FrameOutputStream;
import tidelog.v1.Broker.InitProducerIdResponse;
import tidelog.v1.RecordBatchOuterClass.Batch;
import tidelog.v1.RecordBatchOuterClass.BatchHeader;
import tidelog.v1.RecordBatchOuterClass.Codec;
import tidelog.v1.RecordBatchOuterClass.RecordBatch;

/** Batches to and from their records, as record_batch.proto describes them. */
final class Batches {
  /** A broker accepts no batch that is larger once it is decompressed. */
  private static final int MAX_DECOMPRESSED_BYTES = 64 << 20;

  /** {@code key} and {@code value} are null where there is none. */
  record Rec(ByteString key, ByteString value) {}

  /** The batch that a producer sends: columns, compressed, under a CRC. */
  static Batch seal(List<Rec> records, Codec codec, InitProducerIdResponse producer, int sequence)
      throws IOException {
    var columns = RecordBatch.newBuilder();
    var keys = ByteString.newOutput();
    var values = ByteString.newOutput();
    for (Rec record : records) {
      columns.addKeyLengths(append(keys, record.key()));
      columns.addValueLengths(append(values, record.value()));
    }
    columns.setKeys(keys.toByteString()).setValues(values.toByteString());
    ByteString compressed = compress(columns.build().toByteString(), codec);
    long now = System.currentTimeMillis(); // of all its records, so that there are no deltas
    var header =
        BatchHeader.newBuilder()
            .setCodec(codec)
            .setRecordCount(records.size())
            .setBaseTimestampMs(now)
            .setMaxTimestampMs(now)
            .setProducerId(producer.getProducerId())
            .setProducerEpoch(producer.getProducerEpoch())
            .setBaseSequence(sequence);
    header.setCrc32C(producerCrc(header.build(), compressed));
    return Batch.newBuilder().setHeader(header).setRecords(compressed).build();
  }

  /**
   * The records of a batch that was fetched. Throws unless it is as its producer made it and as its
   * leader stored it. A fence has no records of a producer.
   */
  static List<Rec> open(Batch batch) throws IOException {
    BatchHeader header = batch.getHeader();
    if (producerCrc(header, batch.getRecords()) != header.getCrc32C()
        || brokerCrc(header) != header.getBrokerCrc32C()) {
      throw new IOException(
          "the batch at offset " + header.getBaseOffset() + " is damaged: its CRC does not match");
    }
    if (header.getProducerId() != -1 && header.getBaseSequence() == -1) {
      return List.of();
    }
    var columns = RecordBatch.parseFrom(decompress(batch.getRecords(), header.getCodec()));
    var records = new ArrayList<Rec>(header.getRecordCount());
    int keysAt = 0;
    int valuesAt = 0;
    for (int i = 0; i < header.getRecordCount(); i++) {
      int keyLength = columns.getKeyLengthsCount() == 0 ? -1 : columns.getKeyLengths(i);
      int valueLength = columns.getValueLengths(i);
      records.add(
          new Rec(
              cut(columns.getKeys(), keysAt, keyLength),
              cut(columns.getValues(), valuesAt, valueLength)));
      keysAt += Math.max(keyLength, 0);
      valuesAt += Math.max(valueLength, 0);
    }
    return records;
  }

  private static int append(ByteString.Output column, ByteString item) throws IOException {
    if (item == null) {
      return -1;
    }
    item.writeTo(column);
    return item.size();
  }

  private static ByteString cut(ByteString column, int at, int length) {
    return length < 0 ? null : column.substring(at, at + length);
  }

  private static int producerCrc(BatchHeader header, ByteString records) {
    ByteBuffer fields =
        littleEndian(37)
            .put((byte) header.getCodecValue())
            .putInt(header.getRecordCount())
            .putLong(header.getBaseTimestampMs())
            .putLong(header.getMaxTimestampMs())
            .putLong(header.getProducerId())
            .putInt(header.getProducerEpoch())
            .putInt(header.getBaseSequence());
    var crc = new CRC32C();
    crc.update(fields.flip());
    records.asReadOnlyByteBufferList().forEach(crc::update);
    return (int) crc.getValue();
  }

  private static int brokerCrc(BatchHeader header) {
    ByteBuffer fields =
        littleEndian(24)
            .putLong(header.getBaseOffset())
            .putInt(header.getLeaderEpoch())
            .putLong(header.getAppendTimeMs())
            .putInt(header.getCrc32C());
    var crc = new CRC32C();
    crc.update(fields.flip());
    return (int) crc.getValue();
  }

  private static ByteBuffer littleEndian(int bytes) {
    return ByteBuffer.allocate(bytes).order(ByteOrder.LITTLE_ENDIAN);
  }

  private static ByteString compress(ByteString plain, Codec codec) throws IOException {
    if (codec == Codec.CODEC_UNSPECIFIED) {
      return plain;
    }
    if (codec == Codec.CODEC_ZSTD) {
      return ByteString.copyFrom(Zstd.compress(plain.toByteArray()));
    }
    var bytes = new ByteArrayOutputStream();
    try (OutputStream stream =
        codec == Codec.CODEC_GZIP
            ? new GZIPOutputStream(bytes)
            : new LZ4FrameOutputStream(bytes)) {
      plain.writeTo(stream);
    }
    return ByteString.copyFrom(bytes.toByteArray());
  }

  private static byte[] decompress(ByteString compressed, Codec codec) throws IOException {
    InputStream bytes = compressed.newInput();
    try (InputStream stream =
        switch (codec) {
          case CODEC_UNSPECIFIED -> bytes;
          case CODEC_GZIP -> new GZIPInputStream(bytes);
          case CODEC_LZ4 -> new LZ4FrameInputStream(bytes);
          case CODEC_ZSTD -> new ZstdInputStream(bytes);
          default -> throw new IOException("this client does not know the codec of a batch");
        }) {
      byte[] plain = stream.readNBytes(MAX_DECOMPRESSED_BYTES + 1);
      if (plain.length > MAX_DECOMPRESSED_BYTES) {
        throw new IOException(
            "a batch has more than " + MAX_DECOMPRESSED_BYTES + " bytes once decompressed");
      }
      return plain;
    }
  }

  private Batches() {}
}
