package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/status"

	pb "tidelog-example/tidelog/v1"
)

const (
	maxMessageBytes = 64 << 20 // gRPC's own limit of 4 MiB is less than a batch may have
	metadataTimeout = 2 * time.Second
	callTimeout     = 10 * time.Second // more than a leader is asked to wait for its replicas
	retryFor        = 60 * time.Second
	metadataRounds  = 20
	minPause        = 50 * time.Millisecond
	maxPause        = 500 * time.Millisecond
)

// What errors.proto calls retriable, of all that a client's requests may be answered with.
var retriable = map[pb.ErrorCode]bool{
	pb.ErrorCode_ERROR_CODE_REQUEST_TIMED_OUT:          true,
	pb.ErrorCode_ERROR_CODE_UNKNOWN_TOPIC_OR_PARTITION: true,
	pb.ErrorCode_ERROR_CODE_UNKNOWN_TOPIC_ID:           true,
	pb.ErrorCode_ERROR_CODE_NOT_LEADER:                 true,
	pb.ErrorCode_ERROR_CODE_LEADER_NOT_AVAILABLE:       true,
	pb.ErrorCode_ERROR_CODE_FENCED_LEADER_EPOCH:        true,
	pb.ErrorCode_ERROR_CODE_UNKNOWN_LEADER_EPOCH:       true,
	pb.ErrorCode_ERROR_CODE_LEADER_CHANGED:             true,
	pb.ErrorCode_ERROR_CODE_NOT_ENOUGH_REPLICAS:        true,
	pb.ErrorCode_ERROR_CODE_OFFSET_NOT_AVAILABLE:       true,
	pb.ErrorCode_ERROR_CODE_CORRUPT_BATCH:              true,
	pb.ErrorCode_ERROR_CODE_OUT_OF_ORDER_SEQUENCE:      true,
	pb.ErrorCode_ERROR_CODE_STORAGE_ERROR:              true,
}

// Leader of one partition: a broker, in one epoch of its leadership.
type Leader struct {
	brokerID int32
	Epoch    int32
}

// Cluster follows the leaders of one topic's partitions.
type Cluster struct {
	Topic, TopicID string
	bootstrap      []string

	lock        sync.Mutex
	connections map[string]pb.BrokerServiceClient
	addresses   map[int32]string
	leaders     []Leader
	turn        int
}

// OpenCluster finds the topic's partitions.
func OpenCluster(bootstrap []string, topic string) (*Cluster, error) {
	cluster := &Cluster{
		Topic:       topic,
		bootstrap:   bootstrap,
		connections: map[string]pb.BrokerServiceClient{},
		addresses:   map[int32]string{},
	}
	return cluster, cluster.refresh()
}

// Partitions of the topic, as it was when it was opened.
func (c *Cluster) Partitions() int { return len(c.leaders) }

// Ask calls the present leader of a partition until the answer is one that another try would not
// change. What a call does has to be harmless when it is done twice.
func (c *Cluster) Ask(partition int32, call func(context.Context, pb.BrokerServiceClient, Leader) (*pb.Error, error)) error {
	last := errors.New("the partition has no leader")
	pause := minPause
	for giveUp := time.Now().Add(retryFor); time.Now().Before(giveUp); {
		if broker, leader := c.leader(partition); broker != nil {
			ctx, cancel := context.WithTimeout(context.Background(), callTimeout)
			rejection, err := call(ctx, broker, leader)
			cancel()
			switch {
			case err != nil && final(err):
				return err
			case err != nil:
				last = err
			case rejection == nil:
				return nil
			case !retriable[rejection.Code]:
				return rejected(rejection)
			default:
				last = rejected(rejection)
			}
			if c.follow(partition, rejection.GetLeader()) {
				continue // the broker has named the present leader
			}
		}
		time.Sleep(pause/2 + rand.N(pause/2))
		pause = min(2*pause, maxPause)
		if err := c.refresh(); err != nil {
			last = err
		}
	}
	return fmt.Errorf("partition %d: given up after %v: %w", partition, retryFor, last)
}

// AskAny calls one broker after another until one answers.
func (c *Cluster) AskAny(call func(context.Context, pb.BrokerServiceClient) (*pb.Error, error)) error {
	var said, failed error // an answer explains more than brokers that are gone
	for range metadataRounds {
		for _, broker := range c.brokers() {
			ctx, cancel := context.WithTimeout(context.Background(), metadataTimeout)
			rejection, err := call(ctx, broker)
			cancel()
			if err == nil && rejection == nil {
				return nil
			}
			if err != nil {
				failed = err
			} else {
				said = rejected(rejection) // this broker may only be behind
			}
		}
		time.Sleep(2 * minPause)
	}
	return cmp.Or(said, failed)
}

func (c *Cluster) refresh() error {
	return c.AskAny(func(ctx context.Context, broker pb.BrokerServiceClient) (*pb.Error, error) {
		answer, err := broker.Metadata(ctx, &pb.MetadataRequest{Topics: []string{c.Topic}})
		if err != nil {
			return nil, err
		}
		topic := answer.Topics[0]
		if topic.Error == nil {
			c.apply(answer.Brokers, topic)
		}
		return topic.Error, nil
	})
}

func (c *Cluster) apply(brokers []*pb.BrokerEndpoint, topic *pb.TopicMetadata) {
	c.lock.Lock()
	defer c.lock.Unlock()
	for _, broker := range brokers {
		c.addresses[broker.BrokerId] = broker.Address
	}
	if c.leaders == nil {
		c.TopicID = topic.TopicId
		c.leaders = slices.Repeat([]Leader{{-1, -1}}, int(topic.PartitionCount))
	}
	for _, p := range topic.Partitions {
		// Another broker may have sent a newer one: epochs only grow, within one topic.
		if topic.TopicId == c.TopicID && int(p.Partition) < len(c.leaders) && p.LeaderEpoch >= c.leaders[p.Partition].Epoch {
			c.leaders[p.Partition] = Leader{p.Leader, p.LeaderEpoch}
		}
	}
}

// follow takes a leader that another broker has named; false: it is not newer.
func (c *Cluster) follow(partition int32, hint *pb.LeaderHint) bool {
	c.lock.Lock()
	defer c.lock.Unlock()
	if hint == nil || hint.LeaderEpoch <= c.leaders[partition].Epoch {
		return false
	}
	c.addresses[hint.BrokerId] = hint.Address
	c.leaders[partition] = Leader{hint.BrokerId, hint.LeaderEpoch}
	return true
}

func (c *Cluster) leader(partition int32) (pb.BrokerServiceClient, Leader) {
	c.lock.Lock()
	defer c.lock.Unlock()
	leader := c.leaders[partition]
	if address, known := c.addresses[leader.brokerID]; known { // not for -1: no leader
		return c.connect(address), leader
	}
	return nil, leader
}

// brokers gives all that are known, each time with another one first.
func (c *Cluster) brokers() (brokers []pb.BrokerServiceClient) {
	c.lock.Lock()
	defer c.lock.Unlock()
	addresses := append([]string(nil), c.bootstrap...)
	for _, address := range c.addresses {
		addresses = append(addresses, address)
	}
	c.turn++
	for i := range addresses {
		brokers = append(brokers, c.connect(addresses[(i+c.turn)%len(addresses)]))
	}
	return brokers
}

func (c *Cluster) connect(address string) pb.BrokerServiceClient {
	if c.connections[address] == nil {
		connection, err := grpc.NewClient(
			address,
			grpc.WithTransportCredentials(insecure.NewCredentials()),
			grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(maxMessageBytes)),
			// A broker that restarts may lead at once, so it is looked for often.
			grpc.WithConnectParams(grpc.ConnectParams{
				Backoff:           backoff.Config{BaseDelay: minPause, Multiplier: 2, Jitter: 0.2, MaxDelay: maxPause},
				MinConnectTimeout: time.Second,
			}),
			grpc.WithKeepaliveParams(keepalive.ClientParameters{Time: 10 * time.Second, Timeout: 5 * time.Second}),
		)
		if err != nil { // the address is malformed
			panic(err)
		}
		c.connections[address] = pb.NewBrokerServiceClient(connection)
	}
	return c.connections[address]
}

// final: a broker understood, and would say the same again. After any other status there was no
// answer, and what was asked may have been done all the same.
func final(err error) bool {
	switch status.Code(err) {
	case codes.InvalidArgument, codes.FailedPrecondition, codes.OutOfRange, codes.Unimplemented,
		codes.PermissionDenied, codes.Unauthenticated:
		return true
	}
	return false
}

func rejected(rejection *pb.Error) error {
	return fmt.Errorf("%v: %s", rejection.Code, rejection.Message)
}
