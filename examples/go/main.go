// Writes to a topic of Tidelog, and reads it. README.md says how.
package main

import (
	"bufio"
	"bytes"
	"context"
	"flag"
	"fmt"
	"hash/crc32"
	"log"
	"math"
	"os"
	"strings"
	"sync"

	pb "tidelog-example/tidelog/v1"
)

const (
	batchRecords  = 1000
	batchBytes    = 64 << 10
	maxLineBytes  = 512 << 10
	replicaWaitMs = 5_000
	fetchWaitMs   = 500
	fetchBytes    = 1 << 20
)

func main() {
	log.SetFlags(0)
	if len(os.Args) < 3 || (os.Args[1] != "produce" && os.Args[1] != "consume") {
		log.Fatal("usage: tidelog-example produce TOPIC --brokers HOST:PORT[,...] [--compression none|gzip|lz4|zstd]\n" +
			"       tidelog-example consume TOPIC --brokers HOST:PORT[,...] [--until-end]")
	}
	options := flag.NewFlagSet(os.Args[1], flag.ExitOnError)
	brokers := options.String("brokers", "127.0.0.1:7501", "where to begin, as HOST:PORT[,HOST:PORT]")
	compression := options.String("compression", "zstd", "of what is produced: none, gzip, lz4 or zstd")
	untilEnd := options.Bool("until-end", false, "consume what is committed now, and end")
	options.Parse(os.Args[3:])
	codec, known := codecs[*compression]
	if !known {
		log.Fatalf("compression %q is not known: none, gzip, lz4 or zstd", *compression)
	}

	cluster, err := OpenCluster(strings.Split(*brokers, ","), os.Args[2])
	if err != nil {
		log.Fatal(err)
	}
	if os.Args[1] == "produce" {
		err = produce(cluster, codec)
	} else {
		consume(cluster, *untilEnd)
	}
	if err != nil {
		log.Fatal(err)
	}
}

// produce reads "key:value" lines, or values alone, and prints each record once it is
// acknowledged. Each partition has a worker, with one batch on its way at a time: what comes
// meanwhile is the next batch. Records of one key stay in order.
func produce(cluster *Cluster, codec pb.Codec) error {
	var producer *pb.InitProducerIdResponse
	err := cluster.AskAny(func(ctx context.Context, broker pb.BrokerServiceClient) (*pb.Error, error) {
		var err error
		producer, err = broker.InitProducerId(ctx, &pb.InitProducerIdRequest{})
		return producer.GetError(), err
	})
	if err != nil {
		return err
	}
	var workers sync.WaitGroup
	queues := make([]chan Record, cluster.Partitions())
	for partition := range queues {
		queues[partition] = make(chan Record, batchRecords) // when it is full, reading waits
		workers.Go(func() { send(cluster, int32(partition), queues[partition], codec, producer) })
	}
	lines := bufio.NewScanner(os.Stdin)
	lines.Buffer(nil, maxLineBytes)
	for count := 0; lines.Scan(); count++ {
		key, value, keyed := bytes.Cut(bytes.Clone(lines.Bytes()), []byte(":"))
		if keyed {
			queues[crc32.Checksum(key, castagnoli)%uint32(len(queues))] <- Record{key, value}
		} else {
			queues[count%len(queues)] <- Record{nil, key}
		}
	}
	for _, queue := range queues {
		close(queue)
	}
	workers.Wait()
	return lines.Err()
}

func send(cluster *Cluster, partition int32, queue <-chan Record, codec pb.Codec, producer *pb.InitProducerIdResponse) {
	sequence := int32(0)
	for record := range queue {
		records, size := []Record{record}, len(record.Value)
		for len(queue) > 0 && len(records) < batchRecords && size < batchBytes {
			record = <-queue
			records, size = append(records, record), size+len(record.Key)+len(record.Value)
		}
		// Sealed once: by its producer id and sequence the brokers know it when it comes again.
		batch, err := SealBatch(records, codec, producer, sequence)
		if err != nil {
			log.Fatal(err)
		}
		request := &pb.ProduceRequest{
			Acks:      pb.Acks_ACKS_ALL,
			TimeoutMs: replicaWaitMs,
			Partitions: []*pb.ProducePartition{
				{Topic: cluster.Topic, Partition: partition, TopicId: cluster.TopicID, Batches: []*pb.Batch{batch}},
			},
		}
		var offset int64
		err = cluster.Ask(partition, func(ctx context.Context, broker pb.BrokerServiceClient, _ Leader) (*pb.Error, error) {
			answer, err := broker.Produce(ctx, request)
			if err != nil {
				return nil, err
			}
			result := answer.Partitions[0]
			offset = result.BaseOffset
			if result.Error.GetCode() == pb.ErrorCode_ERROR_CODE_DUPLICATE_SEQUENCE {
				return nil, nil // written, and where is not remembered: offset is -1
			}
			return result.Error, nil
		})
		if err != nil {
			log.Fatal(err)
		}
		show(partition, offset, records)
		sequence = int32((int64(sequence) + int64(len(records))) & math.MaxInt32)
	}
}

// consume prints every record, from the earliest on; each partition has a worker.
func consume(cluster *Cluster, untilEnd bool) {
	var workers sync.WaitGroup
	for partition := range int32(cluster.Partitions()) {
		workers.Go(func() {
			from, to := find(cluster, partition, pb.OffsetPosition_OFFSET_POSITION_EARLIEST), int64(math.MaxInt64)
			if untilEnd {
				to = find(cluster, partition, pb.OffsetPosition_OFFSET_POSITION_LATEST)
			}
			for from < to {
				from = fetch(cluster, partition, from)
			}
		})
	}
	workers.Wait()
}

// fetch prints the records from an offset on that one answer has, and gives the next offset.
func fetch(cluster *Cluster, partition int32, from int64) int64 {
	var batches []*pb.Batch
	err := cluster.Ask(partition, func(ctx context.Context, broker pb.BrokerServiceClient, leader Leader) (*pb.Error, error) {
		answer, err := broker.Fetch(ctx, &pb.FetchRequest{
			MaxWaitMs: fetchWaitMs,
			MinBytes:  1,
			MaxBytes:  fetchBytes,
			Partitions: []*pb.FetchPartition{{
				Topic: cluster.Topic, Partition: partition, TopicId: cluster.TopicID,
				// A deposed leader learns of it by the epoch, and rejects the request.
				CurrentLeaderEpoch: leader.Epoch, FetchOffset: from, MaxBytes: fetchBytes,
			}},
		})
		if err != nil {
			return nil, err
		}
		batches = answer.Partitions[0].Batches
		return answer.Partitions[0].Error, nil
	})
	if err != nil {
		log.Fatal(err)
	}
	for _, batch := range batches {
		records, err := OpenBatch(batch)
		if err != nil {
			log.Fatal(err)
		}
		header := batch.Header
		if skip := from - header.BaseOffset; len(records) > 0 { // the first may begin below from
			show(partition, from, records[skip:])
		}
		from = header.BaseOffset + int64(header.RecordCount)
	}
	return from
}

func find(cluster *Cluster, partition int32, position pb.OffsetPosition) (offset int64) {
	err := cluster.Ask(partition, func(ctx context.Context, broker pb.BrokerServiceClient, leader Leader) (*pb.Error, error) {
		answer, err := broker.ListOffsets(ctx, &pb.ListOffsetsRequest{Partitions: []*pb.ListOffsetsPartition{{
			Topic: cluster.Topic, Partition: partition, TopicId: cluster.TopicID,
			CurrentLeaderEpoch: leader.Epoch, Position: position,
		}}})
		if err != nil {
			return nil, err
		}
		offset = answer.Partitions[0].Offset
		return answer.Partitions[0].Error, nil
	})
	if err != nil {
		log.Fatal(err)
	}
	return offset
}

var output sync.Mutex

// show prints "partition offset key value", with tabs between; "-" stands for no key.
func show(partition int32, offset int64, records []Record) {
	output.Lock()
	defer output.Unlock()
	lines := bufio.NewWriter(os.Stdout)
	for i, record := range records {
		key := "-"
		if record.Key != nil {
			key = string(record.Key)
		}
		at := int64(-1)
		if offset >= 0 {
			at = offset + int64(i)
		}
		fmt.Fprintf(lines, "%d\t%d\t%s\t%s\n", partition, at, key, record.Value)
	}
	if err := lines.Flush(); err != nil {
		log.Fatal(err)
	}
}
