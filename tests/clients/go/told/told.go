// Package told is what the programs of this folder share: the numbered records of
// tests/support/traffic.py, and how they tell the test what they see.
package told

import (
	"bufio"
	"encoding/json"
	"fmt"
	"os"
	"os/signal"
	"sort"
	"strconv"
	"sync"
	"syscall"
	"time"
)

// Limit is how long anything may take.
const Limit = 120 * time.Second

// CommitEvery is how many records a member of a group handles between commits, at most.
const CommitEvery = 50

// Value is the record i.
func Value(i int) []byte {
	return []byte(fmt.Sprintf("record %d of a numbered row, padded a little", i))
}

// Check ends the program where a call has failed.
func Check(err error, what string) {
	if err != nil {
		fmt.Fprintf(os.Stderr, "%s: %v\n", what, err)
		os.Exit(1)
	}
}

// Number is an argument that has to be one.
func Number(text string) int {
	n, err := strconv.Atoi(text)
	Check(err, "arguments")
	return n
}

// Name is Kafka's name of an error, or "" where there is none.
func Name(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}

// Records prints what a reader sees, a line a record: partition, offset, value.
type Records struct{ out *bufio.Writer }

// NewRecords prints to standard output.
func NewRecords() *Records { return &Records{bufio.NewWriter(os.Stdout)} }

// Saw prints one record.
func (r *Records) Saw(partition int32, offset int64, value []byte) {
	fmt.Fprintf(r.out, "%d %d %s\n", partition, offset, value)
}

// End has everything printed.
func (r *Records) End() { r.out.Flush() }

var saying sync.Mutex

// Say prints one JSON object on a line of its own.
func Say(what map[string]any) {
	line, err := json.Marshal(what)
	Check(err, "json")
	saying.Lock()
	defer saying.Unlock()
	os.Stdout.Write(append(line, '\n'))
}

// Owned is the partitions that a member of a group has. It says each change.
type Owned struct {
	mutex sync.Mutex
	mine  map[int32]bool
}

// Add and Remove change it; Set replaces it.
func (o *Owned) Add(partitions []int32)    { o.change(partitions, true, false) }
func (o *Owned) Remove(partitions []int32) { o.change(partitions, false, false) }
func (o *Owned) Set(partitions []int32)    { o.change(partitions, true, true) }

func (o *Owned) change(partitions []int32, owned, whole bool) {
	o.mutex.Lock()
	defer o.mutex.Unlock()
	if o.mine == nil || whole {
		o.mine = map[int32]bool{}
	}
	for _, p := range partitions {
		if owned {
			o.mine[p] = true
		} else {
			delete(o.mine, p)
		}
	}
	all := []int32{}
	for p := range o.mine {
		all = append(all, p)
	}
	sort.Slice(all, func(a, b int) bool { return all[a] < all[b] })
	Say(map[string]any{"owns": all})
}

// Stopped is closed when the program is asked to end with SIGTERM.
func Stopped() <-chan os.Signal {
	asked := make(chan os.Signal, 1)
	signal.Notify(asked, syscall.SIGTERM)
	return asked
}
