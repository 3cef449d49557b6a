package server

import (
	"bufio"
	"bytes"
	"io"
	"syscall"
	"testing"
	"time"

	"github.com/psyche-go/psyche/base/identity"
	"github.com/psyche-go/psyche/core/coordinator"
	"github.com/psyche-go/psyche/net/frame"
	"github.com/psyche-go/psyche/record/follow"
	"github.com/psyche-go/psyche/record/journal"
)

// cpuTime returns the CPU time of this process.
func cpuTime(t *testing.T) time.Duration {
	t.Helper()
	var used syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &used); err != nil {
		t.Fatal(err)
	}
	return time.Duration(used.Utime.Nano() + used.Stime.Nano())
}

// recordsOf returns all records of a journal.
func recordsOf(t *testing.T, h *history) (records [][]byte) {
	t.Helper()
	end := h.store.journal.Size()
	source := bufio.NewReader(io.NewSectionReader(h.store.journal, journal.First, end-journal.First))
	for range h.store.log.Head().Index {
		record, err := readEntry(source)
		if err != nil {
			t.Fatal(err)
		}
		records = append(records, record)
	}
	return records
}

// TestCostOfFollowing logs the cost of a round for a client that follows the run: CPU time, and bytes
// by the number of records that arrive together. A round cost 4.3 to 5.3 KiB with 200 members and 32
// witnesses, and 4 to 6 ms with 256 members. The client must have the same state as the host.
func TestCostOfFollowing(t *testing.T) {
	const rounds = 24
	for _, members := range []int{8, 200, 256} {
		if testing.Short() && members > 8 {
			continue
		}
		h := makeHistory(t, t.TempDir(), members, rounds)
		records := recordsOf(t, h)
		for _, together := range []int{4, 8, 32} {
			size, took := followAll(t, h, records, together)
			t.Logf("%d members, %d records at a time: %.1f KiB and %.1f ms of CPU for each client and round", members, together,
				float64(size)/rounds/1024, took.Seconds()*1000/rounds)
		}
		if err := h.store.close(); err != nil {
			t.Fatal(err)
		}
	}
}

// followAll sends the records of the rounds through the stream and follows them. As on a host, a group
// of records ends with a tick or when it is full.
func followAll(t *testing.T, h *history, records [][]byte, together int) (sent int, took time.Duration) {
	t.Helper()
	genesis := h.store.log.Genesis()
	host, err := follow.Begin(genesis)
	if err != nil {
		t.Fatal(err)
	}
	client, err := follow.Begin(genesis)
	if err != nil {
		t.Fatal(err)
	}
	key := joinHostKey(t)
	c := logStream{index: 1, marks: []mark{{1, 0}}, heads: signHeads(host, nil, key)}
	var window []byte
	var group [][]byte
	flush := func() {
		for _, r := range group {
			if _, err := host.Apply(r); err != nil {
				t.Fatal(err)
			}
		}
		c = c.next(host, group, 0, key)
		newest := c.pushes[len(c.pushes)-1].frame
		began := cpuTime(t)
		_, payload, err := frame.NewReader(bytes.NewReader(newest)).Next(frame.MaxToClient)
		if err != nil {
			t.Fatal(err)
		}
		got, err := frame.DecodeRecords(payload, window)
		if err != nil {
			t.Fatal(err)
		}
		window = frame.Slide(window, got.Raw)
		if err := got.Each(func(r []byte) error { _, err := client.Apply(r); return err }); err != nil {
			t.Fatal(err)
		}
		for _, head := range got.Heads {
			if !head.Verify(key.ID(), host.Run()) {
				t.Fatal("a head is invalid")
			}
		}
		if shown := client.State.Clone(); shown.RunState == coordinator.RoundTrain || shown.RunState == coordinator.RoundWitness {
			took += cpuTime(t) - began
			sent += len(newest)
		}
		group = nil
	}
	for _, r := range records[1:] {
		group = append(group, r)
		if len(group) >= together || follow.Kind(r[0]) == follow.KindTick {
			flush()
		}
	}
	if len(group) > 0 {
		flush()
	}
	if client.State.Hash() != h.store.log.State.Hash() || client.Head() != h.store.log.Head() {
		t.Fatal("the state of the client differs from the host's state")
	}
	return sent, took
}

// joinHostKey returns the host's key of a history.
func joinHostKey(t *testing.T) identity.Key {
	t.Helper()
	key, err := identity.Generate(rngReader{})
	if err != nil {
		t.Fatal(err)
	}
	return key
}
