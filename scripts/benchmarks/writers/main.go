// Command writers is the load of one run of metadata-write: N writers, each of which makes one
// change in a request of its own and waits for it before it makes the next.
//
//	writers '{"kind": "kafka", "address": "127.0.0.1:9093", "writers": 100, …}'
//
// Prints the figures as JSON. One program for every server, so that the writers, the clock and the
// counting are the same; only what is sent differs.
package main

import (
	"encoding/json"
	"fmt"
	"os"
	"sort"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
)

// Job is what argv says.
type Job struct {
	Kind        string   `json:"kind"` // kafka or etcd
	Addresses   []string `json:"addresses"`
	Writers     int      `json:"writers"`
	Connections int      `json:"connections"`
	WarmSeconds float64  `json:"warm_s"`
	Seconds     float64  `json:"seconds"`
	Pids        []int    `json:"pids"` // the servers', for their CPU time
}

// Target makes the `sequence`th change of a writer and returns when it is committed.
type Target interface {
	Change(writer int, sequence int64) error
}

func main() {
	var job Job
	if len(os.Args) != 2 || json.Unmarshal([]byte(os.Args[1]), &job) != nil {
		fail(fmt.Errorf("usage: writers JOB (JSON)"))
	}
	target, err := connect(job)
	if err != nil {
		fail(err)
	}
	figures, err := run(job, target)
	if err != nil {
		fail(err)
	}
	out, _ := json.Marshal(figures)
	fmt.Println(string(out))
}

func fail(err error) {
	fmt.Fprintln(os.Stderr, err)
	os.Exit(1)
}

func connect(job Job) (Target, error) {
	switch job.Kind {
	case "kafka":
		return connectKafka(job.Addresses[0], job.Connections)
	case "etcd":
		return connectEtcd(job.Addresses, job.Connections)
	}
	return nil, fmt.Errorf("kind %q: kafka or etcd", job.Kind)
}

// run counts what is asked for after the warm-up and answered before the end.
func run(job Job, target Target) (map[string]float64, error) {
	begin := time.Now().Add(time.Duration(job.WarmSeconds * float64(time.Second)))
	end := begin.Add(time.Duration(job.Seconds * float64(time.Second)))
	var failed atomic.Value
	var sequence atomic.Int64
	sequence.Store(time.Now().UnixMicro()) // changes of an earlier run are none any more
	times := make([][]time.Duration, job.Writers)
	var group sync.WaitGroup
	for writer := range job.Writers {
		group.Add(1)
		go func() {
			defer group.Done()
			for failed.Load() == nil {
				asked := time.Now()
				if asked.After(end) {
					return
				}
				if err := target.Change(writer, sequence.Add(1)); err != nil {
					failed.CompareAndSwap(nil, err.Error())
					return
				}
				answered := time.Now()
				if asked.After(begin) && answered.Before(end) {
					times[writer] = append(times[writer], answered.Sub(asked))
				}
			}
		}()
	}
	time.Sleep(time.Until(begin))
	servers, own := cpuSeconds(job.Pids), ownCPU()
	time.Sleep(time.Until(end))
	servers, own = cpuSeconds(job.Pids)-servers, ownCPU()-own
	group.Wait()
	if text := failed.Load(); text != nil {
		return nil, fmt.Errorf("%s", text)
	}
	return figures(times, job.Seconds, servers, own)
}

func figures(times [][]time.Duration, seconds, servers, own float64) (map[string]float64, error) {
	var all []time.Duration
	for _, some := range times {
		all = append(all, some...)
	}
	if len(all) == 0 {
		return nil, fmt.Errorf("no change was committed in %.1f s", seconds)
	}
	sort.Slice(all, func(i, j int) bool { return all[i] < all[j] })
	// Nearest rank, as benchmarks/stats.py has it.
	at := func(percent int) float64 {
		return float64(all[(len(all)*percent+99)/100-1].Microseconds())
	}
	return map[string]float64{
		"rate":         float64(len(all)) / seconds,
		"changes":      float64(len(all)),
		"p50":          at(50),
		"p99":          at(99),
		"max":          at(100),
		"server_cpu_s": servers,
		"client_cpu_s": own,
		"seconds":      seconds,
	}, nil
}

func ownCPU() float64 {
	var usage syscall.Rusage
	if syscall.Getrusage(syscall.RUSAGE_SELF, &usage) != nil {
		return 0
	}
	return time.Duration(usage.Utime.Nano() + usage.Stime.Nano()).Seconds()
}

// cpuSeconds is user and system time of living processes so far (fields 14 and 15 of stat).
func cpuSeconds(pids []int) float64 {
	const ticksPerSecond = 100
	total := 0
	for _, pid := range pids {
		text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
		if err != nil {
			continue // a server that ended fails its writers, which says so
		}
		fields := strings.Fields(string(text[strings.LastIndexByte(string(text), ')')+1:]))
		for _, field := range fields[11:13] {
			ticks, _ := strconv.Atoi(field)
			total += ticks
		}
	}
	return float64(total) / ticksPerSecond
}
