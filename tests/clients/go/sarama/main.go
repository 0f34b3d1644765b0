// Command sarama is a Sarama client for tests. See tests/clients/test_clients_go.py.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/IBM/sarama"

	"pykraft/tests/clients/told"
)

func main() {
	command, servers, rest := os.Args[1], strings.Split(os.Args[2], ","), os.Args[3:]
	switch command {
	case "write":
		write(servers, rest[0], told.Number(rest[1]), told.Number(rest[2]), rest[3])
	case "read":
		read(servers, rest[0], told.Number(rest[1]), told.Number(rest[2]))
	case "admin":
		admin(servers, rest[0])
	case "member":
		member(servers, rest[0], rest[1], rest[2], rest[3])
	}
}

func config() *sarama.Config {
	c := sarama.NewConfig()
	c.Version = sarama.MaxVersion
	return c
}

// write is idempotent: only then the library keeps the order when it sends again.
func write(servers []string, topic string, partitions, count int, codec string) {
	c := config()
	c.Producer.Partitioner = sarama.NewManualPartitioner
	c.Producer.Idempotent = true
	c.Producer.RequiredAcks = sarama.WaitForAll
	c.Producer.Return.Successes = true
	c.Net.MaxOpenRequests = 1
	told.Check(c.Producer.Compression.UnmarshalText([]byte(codec)), "codec")
	producer, err := sarama.NewAsyncProducer(servers, c)
	told.Check(err, "producer")
	go func() {
		for i := 0; i < count; i++ {
			producer.Input() <- &sarama.ProducerMessage{Topic: topic, Partition: int32(i % partitions),
				Value: sarama.ByteEncoder(told.Value(i)), Metadata: i}
		}
	}()
	limit := time.After(told.Limit)
	for done := 0; done < count; done++ {
		select {
		case m := <-producer.Successes():
			if m.Offset != int64(m.Metadata.(int)/partitions) {
				told.Check(fmt.Errorf("at %d", m.Offset), fmt.Sprintf("record %d", m.Metadata))
			}
		case failed := <-producer.Errors():
			told.Check(failed, "produce")
		case <-limit:
			told.Check(errors.New("too late"), "produce")
		}
	}
	told.Check(producer.Close(), "close")
}

func read(servers []string, topic string, partitions, count int) {
	consumer, err := sarama.NewConsumer(servers, config())
	told.Check(err, "consumer")
	messages := make(chan *sarama.ConsumerMessage)
	for p := 0; p < partitions; p++ {
		one, err := consumer.ConsumePartition(topic, int32(p), sarama.OffsetOldest)
		told.Check(err, "partition")
		go func() {
			for m := range one.Messages() {
				messages <- m
			}
		}()
	}
	out := told.NewRecords()
	limit := time.After(told.Limit)
	for seen := 0; seen < count; seen++ {
		select {
		case m := <-messages:
			out.Saw(m.Partition, m.Offset, m.Value)
		case <-limit:
			told.Check(errors.New("too late"), "read")
		}
	}
	out.End()
}

func admin(servers []string, topic string) {
	c, err := sarama.NewClusterAdmin(servers, config())
	told.Check(err, "admin")
	brokers, _, err := c.DescribeCluster()
	told.Check(err, "cluster")
	ids := []int32{}
	for _, broker := range brokers {
		ids = append(ids, broker.ID())
	}
	retention, bytes := "100000", "12345"
	detail := &sarama.TopicDetail{NumPartitions: 2, ReplicationFactor: 3,
		ConfigEntries: map[string]*string{"retention.ms": &retention}}
	told.Check(c.CreateTopic(topic, detail, false), "create")
	again := c.CreateTopic(topic, detail, false)
	wide := c.CreateTopic(topic+"-wide", &sarama.TopicDetail{NumPartitions: 1, ReplicationFactor: 9}, false)
	told.Check(c.CreatePartitions(topic, 5, nil, false), "partitions")
	changes := map[string]sarama.IncrementalAlterConfigsEntry{
		"max.message.bytes": {Operation: sarama.IncrementalAlterConfigsOperationSet, Value: &bytes},
		"retention.ms":      {Operation: sarama.IncrementalAlterConfigsOperationDelete},
	}
	told.Check(c.IncrementalAlterConfig(sarama.TopicResource, topic, changes, false), "alter")
	// What was answered is committed; brokers hear of it a moment later.
	limit := time.Now().Add(told.Limit)
	configs := map[string]string{}
	for configs["max.message.bytes"] != "12345" && time.Now().Before(limit) {
		entries, err := c.DescribeConfig(sarama.ConfigResource{Type: sarama.TopicResource, Name: topic})
		told.Check(err, "describe")
		for _, entry := range entries {
			configs[entry.Name] = entry.Value
		}
	}
	partitions := 0
	for partitions != 5 && time.Now().Before(limit) {
		described, err := c.DescribeTopics([]string{topic})
		told.Check(err, "topics")
		partitions = len(described[0].Partitions)
	}
	told.Check(c.DeleteTopic(topic), "delete")
	gone := c.DeleteTopic(topic)
	told.Say(map[string]any{
		"brokers": ids, "again": name(again), "wide": name(wide), "partitions": partitions,
		"retention": configs["retention.ms"], "bytes": configs["max.message.bytes"], "gone": name(gone),
	})
}

// name is Kafka's name of the errors that admin meets.
func name(err error) string {
	names := map[sarama.KError]string{
		sarama.ErrTopicAlreadyExists:              "TOPIC_ALREADY_EXISTS",
		sarama.ErrInvalidReplicationFactor:        "INVALID_REPLICATION_FACTOR",
		sarama.ErrUnknownTopicOrPartition:         "UNKNOWN_TOPIC_OR_PARTITION",
		sarama.ErrRebalanceInProgress:             "REBALANCE_IN_PROGRESS",
		sarama.ErrNotCoordinatorForConsumer:       "NOT_COORDINATOR",
		sarama.ErrOffsetsLoadInProgress:           "COORDINATOR_LOAD_IN_PROGRESS",
		sarama.ErrConsumerCoordinatorNotAvailable: "COORDINATOR_NOT_AVAILABLE",
	}
	for known, text := range names {
		if errors.Is(err, known) {
			return text
		}
	}
	return told.Name(err)
}

// handler is a member between two rebalances.
type handler struct {
	topic string
	owned *told.Owned
}

func (h handler) Setup(session sarama.ConsumerGroupSession) error {
	h.owned.Set(session.Claims()[h.topic])
	return nil
}

func (h handler) Cleanup(sarama.ConsumerGroupSession) error {
	h.owned.Set(nil)
	return nil
}

func (h handler) ConsumeClaim(session sarama.ConsumerGroupSession, claim sarama.ConsumerGroupClaim) error {
	for {
		select {
		case m, open := <-claim.Messages():
			if !open {
				return nil
			}
			told.Say(map[string]any{"got": [][]any{{m.Partition, m.Offset, string(m.Value)}}})
			session.MarkMessage(m, "")
			if (m.Offset+1)%told.CommitEvery == 0 {
				session.Commit()
			}
		case <-session.Context().Done():
			return nil
		}
	}
}

// member commits after some records and at the end of each session, as the library does.
func member(servers []string, group, topic, protocol, instance string) {
	c := config()
	c.Consumer.Offsets.Initial = sarama.OffsetOldest
	c.Consumer.Offsets.AutoCommit.Enable = true
	c.Consumer.Offsets.AutoCommit.Interval = 200 * time.Millisecond
	c.Consumer.Group.Session.Timeout = 6 * time.Second
	c.Consumer.Group.Heartbeat.Interval = 500 * time.Millisecond
	c.Consumer.Return.Errors = true
	if protocol == "range" {
		c.Consumer.Group.Rebalance.GroupStrategies = []sarama.BalanceStrategy{sarama.NewBalanceStrategyRange()}
	} else {
		c.Consumer.Group.Rebalance.GroupStrategies = []sarama.BalanceStrategy{sarama.NewBalanceStrategySticky()}
	}
	if instance != "-" {
		c.Consumer.Group.InstanceId = instance
	}
	consumer, err := sarama.NewConsumerGroup(servers, group, c)
	told.Check(err, "group")
	ctx, cancel := context.WithCancel(context.Background())
	stopped := told.Stopped()
	go func() { <-stopped; cancel() }()
	go func() {
		for err := range consumer.Errors() {
			told.Say(map[string]any{"error": name(err)})
		}
	}()
	for ctx.Err() == nil {
		if err := consumer.Consume(ctx, []string{topic}, handler{topic, &told.Owned{}}); err != nil {
			told.Say(map[string]any{"error": name(err)})
		}
	}
	told.Check(consumer.Close(), "close")
}
