package main

import (
	"bytes"
	"compress/gzip"
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"io"
	"time"

	"github.com/klauspost/compress/zstd"
	"github.com/pierrec/lz4/v4"
	"google.golang.org/protobuf/proto"

	pb "tidelog-example/tidelog/v1"
)

// A broker accepts no batch that is larger once it is decompressed.
const maxDecompressedBytes = 64 << 20

var (
	castagnoli     = crc32.MakeTable(crc32.Castagnoli)
	zstdEncoder, _ = zstd.NewWriter(nil) // no option that could be wrong
	codecs         = map[string]pb.Codec{
		"none": pb.Codec_CODEC_UNSPECIFIED,
		"gzip": pb.Codec_CODEC_GZIP,
		"lz4":  pb.Codec_CODEC_LZ4,
		"zstd": pb.Codec_CODEC_ZSTD,
	}
)

// Record has a nil Key or Value where it has none.
type Record struct{ Key, Value []byte }

// SealBatch makes the batch that a producer sends: columns, compressed, under a CRC.
func SealBatch(records []Record, codec pb.Codec, producer *pb.InitProducerIdResponse, sequence int32) (*pb.Batch, error) {
	columns := &pb.RecordBatch{}
	for _, record := range records {
		columns.Keys, columns.KeyLengths = add(columns.Keys, columns.KeyLengths, record.Key)
		columns.Values, columns.ValueLengths = add(columns.Values, columns.ValueLengths, record.Value)
	}
	plain, err := proto.Marshal(columns)
	if err != nil {
		return nil, err
	}
	compressed, err := compress(plain, codec)
	if err != nil {
		return nil, err
	}
	now := time.Now().UnixMilli() // of all its records, so that there are no deltas
	header := &pb.BatchHeader{
		Codec:           codec,
		RecordCount:     int32(len(records)),
		BaseTimestampMs: now,
		MaxTimestampMs:  now,
		ProducerId:      producer.ProducerId,
		ProducerEpoch:   producer.ProducerEpoch,
		BaseSequence:    sequence,
	}
	header.Crc32C = producerCRC(header, compressed)
	return &pb.Batch{Header: header, Records: compressed}, nil
}

// OpenBatch gives the records of a batch that was fetched, if it is as its producer made it and as
// its leader stored it. A fence has no records of a producer.
func OpenBatch(batch *pb.Batch) ([]Record, error) {
	header := batch.Header
	if producerCRC(header, batch.Records) != header.Crc32C || brokerCRC(header) != header.BrokerCrc32C {
		return nil, fmt.Errorf("the batch at offset %d is damaged: its CRC does not match", header.BaseOffset)
	}
	if header.ProducerId != -1 && header.BaseSequence == -1 {
		return nil, nil
	}
	plain, err := decompress(batch.Records, header.Codec)
	if err != nil {
		return nil, fmt.Errorf("the batch at offset %d: %w", header.BaseOffset, err)
	}
	columns := &pb.RecordBatch{}
	if err := proto.Unmarshal(plain, columns); err != nil {
		return nil, err
	}
	records := make([]Record, header.RecordCount)
	keys, values := columns.Keys, columns.Values
	for i := range records {
		if len(columns.KeyLengths) > 0 { // else every key is null
			records[i].Key, keys = cut(keys, columns.KeyLengths[i])
		}
		records[i].Value, values = cut(values, columns.ValueLengths[i])
	}
	return records, nil
}

func add(column []byte, lengths []int32, item []byte) ([]byte, []int32) {
	if item == nil {
		return column, append(lengths, -1)
	}
	return append(column, item...), append(lengths, int32(len(item)))
}

func cut(column []byte, length int32) (item, rest []byte) {
	if length < 0 {
		return nil, column
	}
	return column[:length], column[length:]
}

func producerCRC(header *pb.BatchHeader, records []byte) uint32 {
	fields := []byte{byte(header.Codec)}
	fields = binary.LittleEndian.AppendUint32(fields, uint32(header.RecordCount))
	fields = binary.LittleEndian.AppendUint64(fields, uint64(header.BaseTimestampMs))
	fields = binary.LittleEndian.AppendUint64(fields, uint64(header.MaxTimestampMs))
	fields = binary.LittleEndian.AppendUint64(fields, uint64(header.ProducerId))
	fields = binary.LittleEndian.AppendUint32(fields, uint32(header.ProducerEpoch))
	fields = binary.LittleEndian.AppendUint32(fields, uint32(header.BaseSequence))
	return crc32.Update(crc32.Checksum(fields, castagnoli), castagnoli, records)
}

func brokerCRC(header *pb.BatchHeader) uint32 {
	fields := binary.LittleEndian.AppendUint64(nil, uint64(header.BaseOffset))
	fields = binary.LittleEndian.AppendUint32(fields, uint32(header.LeaderEpoch))
	fields = binary.LittleEndian.AppendUint64(fields, uint64(header.AppendTimeMs))
	fields = binary.LittleEndian.AppendUint32(fields, header.Crc32C)
	return crc32.Checksum(fields, castagnoli)
}

func compress(plain []byte, codec pb.Codec) ([]byte, error) {
	var buffer bytes.Buffer
	var writer io.WriteCloser
	switch codec {
	case pb.Codec_CODEC_UNSPECIFIED:
		return plain, nil
	case pb.Codec_CODEC_ZSTD:
		return zstdEncoder.EncodeAll(plain, nil), nil
	case pb.Codec_CODEC_GZIP:
		writer = gzip.NewWriter(&buffer)
	case pb.Codec_CODEC_LZ4:
		writer = lz4.NewWriter(&buffer)
	}
	if _, err := writer.Write(plain); err != nil {
		return nil, err
	}
	err := writer.Close()
	return buffer.Bytes(), err
}

func decompress(compressed []byte, codec pb.Codec) ([]byte, error) {
	var reader io.Reader = bytes.NewReader(compressed)
	var err error
	switch codec {
	case pb.Codec_CODEC_UNSPECIFIED:
		return compressed, nil
	case pb.Codec_CODEC_GZIP:
		reader, err = gzip.NewReader(reader)
	case pb.Codec_CODEC_LZ4:
		reader = lz4.NewReader(reader)
	case pb.Codec_CODEC_ZSTD:
		var decoder *zstd.Decoder
		if decoder, err = zstd.NewReader(reader, zstd.WithDecoderConcurrency(1)); err == nil {
			defer decoder.Close()
			reader = decoder
		}
	default:
		return nil, fmt.Errorf("this client does not know the codec %d", codec)
	}
	if err != nil {
		return nil, err
	}
	plain, err := io.ReadAll(io.LimitReader(reader, maxDecompressedBytes+1))
	if len(plain) > maxDecompressedBytes {
		return nil, fmt.Errorf("it has more than %d bytes once decompressed", maxDecompressedBytes)
	}
	return plain, err
}
