// Command franz is a franz-go client for tests. See tests/clients/test_clients_go.py.
package main

import (
	"context"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"

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

func client(servers []string, options ...kgo.Opt) *kgo.Client {
	c, err := kgo.NewClient(append(options, kgo.SeedBrokers(servers...))...)
	told.Check(err, "client")
	return c
}

// write is idempotent and at acks=all, as the library has it by default.
func write(servers []string, topic string, partitions, count int, codec string) {
	codecs := map[string]kgo.CompressionCodec{
		"none": kgo.NoCompression(), "gzip": kgo.GzipCompression(), "snappy": kgo.SnappyCompression(),
		"lz4": kgo.Lz4Compression(), "zstd": kgo.ZstdCompression(),
	}
	c := client(servers, kgo.RecordPartitioner(kgo.ManualPartitioner()),
		kgo.ProducerBatchCompression(codecs[codec]))
	defer c.Close()
	ctx, cancel := context.WithTimeout(context.Background(), told.Limit)
	defer cancel()
	for i := 0; i < count; i++ {
		i := i
		record := &kgo.Record{Topic: topic, Partition: int32(i % partitions), Value: told.Value(i)}
		c.Produce(ctx, record, func(r *kgo.Record, err error) {
			told.Check(err, "produce")
			if r.Offset != int64(i/partitions) {
				told.Check(fmt.Errorf("at %d", r.Offset), fmt.Sprintf("record %d", i))
			}
		})
	}
	told.Check(c.Flush(ctx), "flush")
}

func read(servers []string, topic string, partitions, count int) {
	places := map[int32]kgo.Offset{}
	for p := 0; p < partitions; p++ {
		places[int32(p)] = kgo.NewOffset().AtStart()
	}
	c := client(servers, kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{topic: places}))
	defer c.Close()
	ctx, cancel := context.WithTimeout(context.Background(), told.Limit)
	defer cancel()
	out := told.NewRecords()
	for seen := 0; seen < count; {
		fetches := c.PollFetches(ctx)
		told.Check(fetches.Err(), "fetch")
		fetches.EachRecord(func(r *kgo.Record) {
			out.Saw(r.Partition, r.Offset, r.Value)
			seen++
		})
	}
	out.End()
}

func admin(servers []string, topic string) {
	c := kadm.NewClient(client(servers))
	defer c.Close()
	ctx, cancel := context.WithTimeout(context.Background(), told.Limit)
	defer cancel()
	cluster, err := c.BrokerMetadata(ctx)
	told.Check(err, "metadata")
	_, err = c.CreateTopic(ctx, 2, 3, map[string]*string{"retention.ms": kadm.StringPtr("100000")}, topic)
	told.Check(err, "create")
	_, again := c.CreateTopic(ctx, 2, 3, nil, topic)
	_, wide := c.CreateTopic(ctx, 1, 9, nil, topic+"-wide")
	grown, err := c.UpdatePartitions(ctx, 5, topic)
	told.Check(err, "partitions")
	told.Check(grown.Error(), "partitions")
	changed, err := c.AlterTopicConfigs(ctx,
		[]kadm.AlterConfig{{Op: kadm.SetConfig, Name: "max.message.bytes", Value: kadm.StringPtr("12345")},
			{Op: kadm.DeleteConfig, Name: "retention.ms"}}, topic)
	told.Check(err, "alter")
	told.Check(changed[0].Err, "alter")
	// What was answered is committed; brokers hear of it a moment later.
	configs := map[string]string{}
	for configs["max.message.bytes"] != "12345" {
		told.Check(ctx.Err(), "configs")
		described, err := c.DescribeTopicConfigs(ctx, topic)
		told.Check(err, "describe")
		for _, one := range described[0].Configs {
			configs[one.Key] = one.MaybeValue()
		}
	}
	ends := kadm.ListedOffsets{}
	for len(ends[topic]) != 5 || ends.Error() != nil {
		told.Check(ctx.Err(), "ends")
		ends, err = c.ListEndOffsets(ctx, topic)
		told.Check(err, "ends")
	}
	deleted, err := c.DeleteTopics(ctx, topic)
	told.Check(err, "delete")
	told.Check(deleted.Error(), "delete")
	deleted, err = c.DeleteTopics(ctx, topic)
	told.Check(err, "delete")
	told.Say(map[string]any{
		"cluster": cluster.Cluster, "brokers": cluster.Brokers.NodeIDs(), "again": name(again),
		"wide": name(wide), "partitions": len(ends[topic]), "retention": configs["retention.ms"],
		"bytes": configs["max.message.bytes"], "gone": name(deleted[topic].Err),
	})
}

func name(err error) string {
	if known, ok := err.(*kerr.Error); ok {
		return known.Message
	}
	return told.Name(err)
}

func member(servers []string, group, topic, protocol, instance string) {
	var owned told.Owned
	gained := func(_ context.Context, _ *kgo.Client, parts map[string][]int32) { owned.Add(parts[topic]) }
	lost := func(_ context.Context, _ *kgo.Client, parts map[string][]int32) { owned.Remove(parts[topic]) }
	options := []kgo.Opt{
		kgo.ConsumerGroup(group), kgo.ConsumeTopics(topic), kgo.DisableAutoCommit(),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()), kgo.BlockRebalanceOnPoll(),
		kgo.OnPartitionsAssigned(gained), kgo.OnPartitionsRevoked(lost), kgo.OnPartitionsLost(lost),
		kgo.SessionTimeout(6 * time.Second), kgo.HeartbeatInterval(500 * time.Millisecond),
	}
	switch protocol {
	case "range":
		options = append(options, kgo.Balancers(kgo.RangeBalancer()))
	case "cooperative-sticky":
		options = append(options, kgo.Balancers(kgo.CooperativeStickyBalancer()))
	case "consumer":
		options = append(options, kgo.ServerSideBalancer(), kgo.Balancers(kgo.StickyBalancer()))
	}
	if instance != "-" {
		options = append(options, kgo.InstanceID(instance))
	}
	c := client(servers, options...)
	ctx, cancel := context.WithCancel(context.Background())
	stopped := told.Stopped()
	go func() { <-stopped; cancel() }()
	for ctx.Err() == nil {
		fetches := c.PollRecords(ctx, told.CommitEvery)
		got := [][]any{}
		fetches.EachRecord(func(r *kgo.Record) {
			got = append(got, []any{r.Partition, r.Offset, string(r.Value)})
		})
		if len(got) > 0 {
			told.Say(map[string]any{"got": got})
			// Not with the context that ends: what was said has to be committed.
			if err := c.CommitUncommittedOffsets(context.Background()); err != nil {
				told.Say(map[string]any{"not_committed": name(err)})
			}
		}
		c.AllowRebalance()
	}
	c.CloseAllowingRebalance()
}
