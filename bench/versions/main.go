// Produces and consumes with franz-go; the arguments and the printed line are those of VersionedClient.java. With a count of 0 it produces
// in batches of 16 kB until it is killed.
package main

import (
	"context"
	"crypto/sha256"
	"fmt"
	"hash"
	"os"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

// throttles keeps the longest throttle time of a broker, in milliseconds.
type throttles struct{ longest atomic.Int64 }

// OnBrokerThrottle is called by franz-go.
func (t *throttles) OnBrokerThrottle(_ kgo.BrokerMetadata, interval time.Duration, _ bool) {
	if interval.Milliseconds() > t.longest.Load() {
		t.longest.Store(interval.Milliseconds())
	}
}

func number(text string) int {
	value, err := strconv.Atoi(text)
	if err != nil {
		panic(err)
	}
	return value
}

func client(arguments []string, options ...kgo.Opt) (*kgo.Client, *throttles) {
	seen := &throttles{}
	options = append(options, kgo.SeedBrokers(strings.Split(arguments[0], ",")...), kgo.ClientID(arguments[2]), kgo.WithHooks(seen))
	made, err := kgo.NewClient(options...)
	if err != nil {
		panic(err)
	}
	return made, seen
}

func value(name string, i int, size int) []byte {
	head := fmt.Sprintf("%s:%d", name, i)
	return []byte(head + strings.Repeat("x", size-len(head)))
}

func produceForever(arguments []string, topic string, name string, size int) {
	producer, _ := client(arguments, kgo.ProducerBatchMaxBytes(16384), kgo.MaxBufferedRecords(4000),
		kgo.ProducerBatchCompression(kgo.NoCompression()))
	for i := 0; ; i++ {
		producer.Produce(context.Background(), &kgo.Record{Topic: topic, Value: value(name, i, size)}, nil)
	}
}

func main() {
	arguments := os.Args[1:]
	topic, name, count, size, partitions := arguments[1], arguments[2], number(arguments[3]), number(arguments[4]), number(arguments[5])
	if count == 0 {
		produceForever(arguments, topic, name, size)
	}
	ctx, stop := context.WithTimeout(context.Background(), 120*time.Second)
	defer stop()

	producer, waited := client(arguments, kgo.RecordPartitioner(kgo.ManualPartitioner()), kgo.MaxBufferedRecords(count),
		kgo.ProducerBatchCompression(kgo.NoCompression()))
	var acknowledged, failed atomic.Int64
	for i := 0; i < count; i++ {
		record := &kgo.Record{Topic: topic, Partition: int32(i % partitions), Value: value(name, i, size)}
		producer.Produce(ctx, record, func(_ *kgo.Record, err error) {
			if err == nil {
				acknowledged.Add(1)
			} else {
				failed.Add(1)
			}
		})
	}
	if err := producer.Flush(ctx); err != nil {
		fmt.Fprintln(os.Stderr, err)
	}
	producer.Close()

	offsets := map[int32]kgo.Offset{}
	digests := make([]hash.Hash, partitions)
	for partition := range digests {
		offsets[int32(partition)] = kgo.NewOffset().AtStart()
		digests[partition] = sha256.New()
	}
	consumer, delayed := client(arguments, kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{topic: offsets}))
	consumed := 0
	for consumed < count && ctx.Err() == nil {
		fetches := consumer.PollFetches(ctx)
		fetches.EachRecord(func(record *kgo.Record) {
			digests[record.Partition].Write(record.Value)
			consumed++
		})
	}
	consumer.Close()
	fmt.Print(acknowledged.Load(), " ", failed.Load(), " ", waited.longest.Load(), " ", delayed.longest.Load(), " ", consumed)
	for _, digest := range digests {
		fmt.Printf(" %x", digest.Sum(nil))
	}
	fmt.Println()
}
