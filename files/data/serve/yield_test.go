package serve_test

import (
	"context"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/psyche-go/psyche/core/assign"
	"github.com/psyche-go/psyche/files/data"
	"github.com/psyche-go/psyche/files/data/remote"
	"github.com/psyche-go/psyche/files/data/remote/message"
	"github.com/psyche-go/psyche/files/data/serve"
	"github.com/psyche-go/psyche/record/config"
)

// TestReadsThatAreGivenUp checks that a client that cancels a batch gets its next batch at once and
// complete. It cancels while the server waits for a state that assigns the batch, while the batch
// is sent, or while a different read of the same client has the connection.
func TestReadsThatAreGivenUp(t *testing.T) {
	const long = 1 << 13
	server := start(t, memory{func(id assign.BatchID) (data.Batch, error) {
		b := data.Batch{ID: id}
		for i := range id.Len() {
			b.Sequences = append(b.Sequences, slices.Repeat([]int32{int32(id.Start + i)}, long))
		}
		return b, nil
	}}, "127.0.0.1:0", func(o *serve.Options) { o.SeqLen, o.StateWait = long-1, time.Minute })
	s := state(3, 0, 1)
	server.Update(s, runHash)
	o := options(server, 1)
	o.SeqLen = long - 1
	c := connect(t, o)
	for step := 1; step <= 24; step++ {
		own, reads := owned(t, s, 1), []assign.BatchID{{Start: 900, End: 904}}
		for range step % 3 {
			reads = slices.Insert(reads, step%len(reads), own)
		}
		ctx, cancel := context.WithCancel(t.Context())
		var givenUp sync.WaitGroup
		for i, id := range reads {
			givenUp.Go(func() {
				if (step+i)%4 < 2 {
					_, _ = c.Gather(ctx, id, []assign.BatchID{id}, true)
				} else {
					_, _ = c.Batch(ctx, id)
				}
			})
		}
		givenUp.Go(func() { // this read is not cancelled
			if _, err := c.Gather(t.Context(), own, []assign.BatchID{own}, true); err != nil {
				t.Errorf("step %d, for an audit: %v", step, err)
			}
		})
		time.Sleep(time.Duration(step%6) * 500 * time.Microsecond) // so that the cancellations meet different parts of a read
		cancel()
		limited, end := context.WithTimeout(t.Context(), 20*time.Second)
		got, err := c.Batch(limited, own)
		end()
		if err != nil {
			t.Fatalf("step %d: %v", step, err)
		}
		for i, sequence := range got.Sequences {
			if sequence[long-1] != int32(own.Start)+int32(i) {
				t.Fatalf("step %d: the tokens of a different sequence", step)
			}
		}
		givenUp.Wait()
		s = state(3, step, 1)
		server.Update(s, runHash)
	}
}

// TestAuditsYield checks that a member gets the batch that it trains while the server reads a batch for
// an audit, and the audit's batch after that.
func TestAuditsYield(t *testing.T) {
	past := assign.BatchID{Start: 0, End: 12}
	var once sync.Once
	reading, release := make(chan struct{}), make(chan struct{})
	server := start(t, memory{func(id assign.BatchID) (data.Batch, error) {
		if id.Start == past.Start {
			once.Do(func() { close(reading) })
			<-release
		}
		return samples(id)
	}}, "127.0.0.1:0", nil)
	s := state(2, 0, 2)
	s.Config.VerificationPercent, s.Progress.Step = 25, 2
	server.Update(s, runHash)
	location := config.DataLocation{Server: &config.ServerData{Addr: server.address}}
	p := open(t, data.Options{Server: func(ctx context.Context, _ config.ServerData, _ data.Options) (data.Provider, error) {
		return remote.Open(ctx, options(server, 1))
	}}, location)
	if _, err := p.Batch(t.Context(), owned(t, s, 1)); err != nil {
		t.Fatal(err)
	}
	audited := make(chan error, 1)
	go func() {
		_, err := data.Gather(t.Context(), p, past, []assign.BatchID{past}, true)
		audited <- err
	}()
	<-reading
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	if _, err := p.Batch(ctx, owned(t, s, 1)); err != nil {
		t.Errorf("the client's batch: %v", err)
	}
	close(release)
	if err := <-audited; err != nil {
		t.Errorf("the other: %v", err)
	}
}

// TestFingerprintsYield has more members request fingerprints than reads of the source may run at the same time, while
// the source is slow. A member still gets its own batch. Fingerprints cost members nothing, so a few members could
// otherwise stop the training of all members.
func TestFingerprintsYield(t *testing.T) {
	const greedy = 20
	var reads atomic.Int32
	release := make(chan struct{})
	server := start(t, memory{func(id assign.BatchID) (data.Batch, error) {
		if id.Start == 0 {
			reads.Add(1)
			<-release
		}
		return samples(id)
	}}, "127.0.0.1:0", nil)
	defer close(release)
	s := state(greedy+1, 3, 1)
	server.Update(s, runHash)
	request := message.Request{Number: 1, Kind: message.Fingerprint, Sequences: []assign.BatchID{{End: 1}}}.AppendTo(nil)
	for n := range byte(greedy) {
		newPeer(t, server).greet(n+1).send(message.TypeRequest, request)
	}
	for deadline := time.Now().Add(20 * time.Second); reads.Load() < 4 && time.Now().Before(deadline); {
		time.Sleep(time.Millisecond)
	}
	time.Sleep(100 * time.Millisecond) // so that more of them could begin to read
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	if _, err := connect(t, options(server, greedy+1)).Batch(ctx, owned(t, s, greedy+1)); err != nil {
		t.Errorf("with %d reads for fingerprints: %v", reads.Load(), err)
	}
	if got := reads.Load(); got > 4 {
		t.Errorf("%d fingerprints are read at the same time, want at most 4", got)
	}
}
