import * as zstd from "@bokuweb/zstd-wasm";
import { loadPackageDefinition } from "@grpc/grpc-js";
import { loadSync, MessageTypeDefinition } from "@grpc/proto-loader";
import * as lz4 from "lz4js";
import { join } from "node:path";
import { gunzipSync, gzipSync } from "node:zlib";
import type { ProtoGrpcType } from "../generated/broker";
import type { Batch, Batch__Output } from "../generated/tidelog/v1/Batch";
import type { BatchHeader__Output } from "../generated/tidelog/v1/BatchHeader";
import type { InitProducerIdResponse__Output } from "../generated/tidelog/v1/InitProducerIdResponse";
import type { RecordBatch, RecordBatch__Output } from "../generated/tidelog/v1/RecordBatch";

// Brokers have rejected batches that are larger once they are decompressed.
const MAX_DECOMPRESSED_BYTES = 64 << 20;

// The options are those that the types in generated/ were made with. 64 bits do not fit into a
// number: they are strings, from which BigInt makes what one can compute with.
const definition = loadSync("tidelog/v1/broker.proto", {
  includeDirs: [join(__dirname, "../../../../proto")],
  longs: String,
  enums: String,
  defaults: true,
  oneofs: true,
});
const recordBatch = definition["tidelog.v1.RecordBatch"] as MessageTypeDefinition<RecordBatch, RecordBatch__Output>;
export const { BrokerService } = (loadPackageDefinition(definition) as unknown as ProtoGrpcType).tidelog.v1;

export const CODECS = {
  none: { wire: "CODEC_UNSPECIFIED", number: 0 },
  gzip: { wire: "CODEC_GZIP", number: 1 },
  lz4: { wire: "CODEC_LZ4", number: 2 },
  zstd: { wire: "CODEC_ZSTD", number: 3 },
} as const;
export type CodecName = keyof typeof CODECS;

export interface Rec {
  key: Buffer | null;
  value: Buffer | null;
}

/** What the CRC of a producer covers, beside the records. */
type Sealed = Pick<
  BatchHeader__Output,
  "codec" | "recordCount" | "baseTimestampMs" | "maxTimestampMs" | "producerId" | "producerEpoch" | "baseSequence"
>;

/** Once, before the first batch: WebAssembly is loaded asynchronously. */
export const loadCodecs = () => zstd.init();

/** The batch that a producer sends: columns, compressed, under a CRC. */
export function seal(
  records: Rec[],
  codec: CodecName,
  producer: InitProducerIdResponse__Output,
  sequence: number,
): Batch {
  const [keys, values] = [records.map((r) => r.key), records.map((r) => r.value)];
  const plain = recordBatch.serialize({
    keys: Buffer.concat(keys.map((key) => key ?? Buffer.alloc(0))),
    keyLengths: keys.map((key) => key?.length ?? -1),
    values: Buffer.concat(values.map((value) => value ?? Buffer.alloc(0))),
    valueLengths: values.map((value) => value?.length ?? -1),
  });
  const compressed = compress(plain, codec);
  const now = String(Date.now()); // of all its records, so that there are no deltas
  const header: Sealed = {
    codec: CODECS[codec].wire,
    recordCount: records.length,
    baseTimestampMs: now,
    maxTimestampMs: now,
    producerId: producer.producerId,
    producerEpoch: producer.producerEpoch,
    baseSequence: sequence,
  };
  return { header: { ...header, crc32c: producerCrc(header, compressed) }, records: compressed };
}

/**
 * The records of a batch that was fetched. Throws unless it is as its producer made it and as its
 * leader stored it. A fence has no records of a producer.
 */
export function open(batch: Batch__Output): Rec[] {
  const header = batch.header!;
  if (producerCrc(header, batch.records) !== header.crc32c || brokerCrc(header) !== header.brokerCrc32c) {
    throw new Error(`the batch at offset ${header.baseOffset} is damaged: its CRC does not match`);
  }
  if (header.producerId !== "-1" && header.baseSequence === -1) return [];
  const columns = recordBatch.deserialize(decompress(batch.records, codecOf(header)));
  let [keysAt, valuesAt] = [0, 0];
  return columns.valueLengths.map((valueLength, i) => {
    const keyLength = columns.keyLengths[i] ?? -1; // without lengths every key is null
    return {
      key: keyLength < 0 ? null : columns.keys.subarray(keysAt, (keysAt += keyLength)),
      value: valueLength < 0 ? null : columns.values.subarray(valuesAt, (valuesAt += valueLength)),
    };
  });
}

function codecOf(header: Sealed): CodecName {
  const found = Object.entries(CODECS).find(([, codec]) => codec.wire === header.codec);
  if (!found) throw new Error(`this client does not know the codec ${header.codec}`);
  return found[0] as CodecName;
}

function producerCrc(header: Sealed, records: Uint8Array): number {
  const fields = Buffer.alloc(37);
  fields.writeUInt8(CODECS[codecOf(header)].number, 0);
  fields.writeInt32LE(header.recordCount, 1);
  fields.writeBigInt64LE(BigInt(header.baseTimestampMs), 5);
  fields.writeBigInt64LE(BigInt(header.maxTimestampMs), 13);
  fields.writeBigInt64LE(BigInt(header.producerId), 21);
  fields.writeInt32LE(header.producerEpoch, 29);
  fields.writeInt32LE(header.baseSequence, 33);
  return crc32c(records, crc32c(fields));
}

function brokerCrc(header: BatchHeader__Output): number {
  const fields = Buffer.alloc(24);
  fields.writeBigInt64LE(BigInt(header.baseOffset), 0);
  fields.writeInt32LE(header.leaderEpoch, 8);
  fields.writeBigInt64LE(BigInt(header.appendTimeMs), 12);
  fields.writeUInt32LE(header.crc32c, 20);
  return crc32c(fields);
}

const CRC_TABLE = Uint32Array.from({ length: 256 }, (_, byte) => {
  for (let bit = 0; bit < 8; bit++) byte = byte & 1 ? (byte >>> 1) ^ 0x82f63b78 : byte >>> 1;
  return byte;
});

export function crc32c(bytes: Uint8Array, crc = 0): number {
  crc = ~crc;
  for (const byte of bytes) crc = CRC_TABLE[(crc ^ byte) & 0xff] ^ (crc >>> 8);
  return ~crc >>> 0;
}

function compress(plain: Buffer, codec: CodecName): Buffer {
  if (codec === "gzip") return gzipSync(plain);
  if (codec === "lz4") return Buffer.from(lz4.compress(plain));
  if (codec === "zstd") return Buffer.from(zstd.compress(plain, 3));
  return plain;
}

function decompress(compressed: Buffer, codec: CodecName): Buffer {
  if (codec === "gzip") return gunzipSync(compressed, { maxOutputLength: MAX_DECOMPRESSED_BYTES });
  if (codec === "lz4") return Buffer.from(lz4.decompress(compressed));
  if (codec === "zstd") return Buffer.from(zstd.decompress(compressed, { defaultHeapSize: MAX_DECOMPRESSED_BYTES }));
  return compressed;
}
