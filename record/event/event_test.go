package event

import (
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"reflect"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/psyche-go/psyche/base/filelock"
	"github.com/psyche-go/psyche/base/fuzztest"
	"github.com/psyche-go/psyche/base/golden"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var samples = []Body{
	Started{Role: "client", ID: "me", RunID: "run", PID: 7, Addrs: []string{"/ip4/127.0.0.1/tcp/1"}},
	State{RunState: "RoundTrain", Epoch: 1, Step: 5, Members: []string{"a", "b"}, Pending: 1, Elected: []string{"a"}, Witnesses: 1, Quorum: 2, IsMember: true, Digest: "00ff", BatchSize: 24, DataIndex: 120, Batches: 2, Uncounted: []string{"b"}, TotalSteps: 100, Limit: 30},
	Joined{Epoch: 2},
	Ready{Epoch: 2, Step: 4, Digest: "00ff", Source: "peers", Bytes: 1 << 40, Seconds: 0.5},
	Trained{Step: 3, Batch: Batch{8, 12}, Loss: 5.25, Tokens: 1024, Seconds: 0.125},
	ResultSent{Step: 3, Batch: Batch{8, 12}, Bytes: 99, Commitment: "ab"},
	Rejected{Step: 3, Batch: Batch{0, 4}, From: "b", Reason: "size"},
	Equivocation{Step: 3, Batch: Batch{0, 4}, From: "b", Commitments: []string{"01", "02"}},
	WitnessSent{Step: 3, Held: 2, Batches: 3},
	HealthCheckSent{Step: 3, Clients: []string{"c"}},
	Applied{Step: 3, Counted: 2, Lost: []LostBatch{{Batch: Batch{0, 4}, Owner: "c"}}, OwnCounted: true, Replica: "cd", Seconds: 0.25},
	Wire{Step: 3, P2PSent: 1, P2PReceived: 2, PayloadSent: 3, PayloadReceived: 4, ModelReceived: 5, ServerSent: 6, ServerReceived: 7},
	Checkpoint{Epoch: 1, Step: 4, Digest: "00ff", Dir: "out/step-4"},
	Uploaded{Step: 4, Digest: "00ff", Place: "Hub org/run@0123"},
	Desynchronised{Epoch: 1, Step: 4, Reason: "replica differs"},
	Rejoined{Epoch: 2, Step: 5},
	Finished{Step: 9, Digest: "00ff", Epoch: 3},
	Failed{Error: "wrong run id"},
	ResultsHeld{Step: 3, Held: 2, Batches: 3, FetchSeconds: 0.0625},
	Span{Step: 3, Part: SpanEncode, Seconds: 0.5},
	Gradient{Step: 3, LR: 0.001, Norm: 1.5},
	OptimizerStats{Step: 3, Tensors: []TensorStats{{Name: "w", GradientEnergy: 1.5, DeltaEnergy: 0.25}}},
	Evaluated{Step: 3, Task: "arc_easy", Scores: map[string]float64{"acc": 0.25}, Samples: 4, Seconds: 0.5},
	Misbehaved{Peer: "peer", Fault: "wrong bytes", Detail: "blob 00", Times: 2, Score: -50},
	Paid{Transactions: 9, Lamports: 45_000, Ticks: 2, OutOfTurn: 1, Rent: 1 << 20},
	Served{To: "c", Request: "samples", Batch: Batch{8, 12}, Bytes: 4096, Seconds: 0.5, Denied: "not assigned"},
	Opened{Step: 3, Bytes: 4096, Seconds: 0.25},
	Audit{Step: 3, Trainer: "b", Outcome: "faulty", Opening: 4096, Seconds: 1.5, Detail: "error 0.5"},
	Accused{Step: 4, Client: "b", Fault: "result", Detail: "error 0.5"},
	Voted{Step: 4, Accused: "b", Guilty: true, Detail: "error 0.5"},
	Trial{Step: 4, Accused: "b", Accuser: "c", Fault: "result", What: "begins"},
	Trials{Open: []OpenTrial{{Accused: "b", Accuser: "c", Step: 3, Fault: "wrong result", Since: 4, Until: 10, Jury: 9, Guilty: 3, Innocent: 1, Juror: true, Voted: true}}},
	Ejected{Client: "b", Until: 5, Reason: "a jury found it guilty", Step: 6},
	Transfer{What: TransferModel, Step: 4, Bytes: 1 << 20, Total: 1 << 40},
	Named{Client: "b", Name: "Ada"},
}

// TestGolden fixes the format of every kind: old logs must stay readable.
func TestGolden(t *testing.T) {
	if len(samples) != len(kinds) {
		t.Fatalf("%d samples for %d kinds", len(samples), len(kinds))
	}
	at := time.Date(2026, 1, 2, 15, 4, 5, 678e6, time.UTC)
	var got []byte
	for _, body := range samples {
		line, err := encode(Event{Time: at, Body: body})
		if err != nil {
			t.Fatal(err)
		}
		got = append(got, line...)
	}
	golden.Compare(t, "events.jsonl", got)
	i := 0
	for e, err := range Read(filepath.Join("testdata", "events.jsonl")) {
		if err != nil {
			t.Fatal(err)
		}
		if !e.Time.Equal(at) || !reflect.DeepEqual(e.Body, samples[i]) {
			t.Errorf("event %d: got %+v, want %+v", i, e, samples[i])
		}
		i++
	}
	if i != len(samples) {
		t.Errorf("read %d events of %d", i, len(samples))
	}
}

// TestFinishedOtherwise checks that a log keeps the unusual ends of a run.
func TestFinishedOtherwise(t *testing.T) {
	want := Event{Time: time.Date(2026, 1, 2, 15, 4, 5, 0, time.UTC), Body: Finished{Step: 9, Closed: true, Unrecorded: true}}
	line, err := encode(want)
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "events.jsonl")
	write(t, path, string(line))
	if got := readAll(t, path); len(got) != 1 || got[0] != want.Body {
		t.Errorf("got %+v of %s", got, line)
	}
}

func TestNilLog(t *testing.T) {
	var l *Log
	if err := errors.Join(l.Append(Joined{}), l.Close()); err != nil {
		t.Error(err)
	}
}

func TestTornLastLine(t *testing.T) {
	path := filepath.Join(t.TempDir(), "events.jsonl")
	write(t, path, `{"time":"2026-01-02T15:04:05Z","kind":"joined","epoch":1}`+"\n"+`{"time":"2026-01-02T15:0`)
	if got := readAll(t, path); len(got) != 1 {
		t.Fatalf("read %d events, want one complete event", len(got))
	}
	l, err := Open(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(l.Append(Joined{Epoch: 2}), l.Close()); err != nil {
		t.Fatal(err)
	}
	got := readAll(t, path)
	if len(got) != 2 || got[1] != (Joined{Epoch: 2}) {
		t.Errorf("after reopening: %v", got)
	}
}

// TestOneWriter checks that a second writer is refused, and changes nothing, until the first closes
// the log.
func TestOneWriter(t *testing.T) {
	if !filelock.Supported {
		t.Skip("no locks on this system")
	}
	path := filepath.Join(t.TempDir(), "events.jsonl")
	first, err := Open(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := first.Append(Joined{Epoch: 1}); err != nil {
		t.Fatal(err)
	}
	_, err = Open(path)
	if !errors.Is(err, ErrInUse) || !strings.Contains(err.Error(), path) || !strings.Contains(err.Error(), "--events-dir") ||
		runtime.GOOS == "linux" && !strings.Contains(err.Error(), fmt.Sprintf("(process %d)", os.Getpid())) {
		t.Error(err)
	}
	if err := errors.Join(first.Append(Joined{Epoch: 2}), first.Close()); err != nil {
		t.Fatal(err)
	}
	second, err := Open(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(second.Append(Joined{Epoch: 3}), second.Close()); err != nil {
		t.Fatal(err)
	}
	if got := readAll(t, path); !reflect.DeepEqual(got, []Body{Joined{Epoch: 1}, Joined{Epoch: 2}, Joined{Epoch: 3}}) {
		t.Errorf("got %v; want []Body{Joined{Epoch: 1}, Joined{Epoch: 2}, Joined{Epoch: 3}}", got)
	}
}

func TestOpenRefusesOtherFiles(t *testing.T) {
	for name, content := range map[string]string{
		"no newline":   strings.Repeat("x", maxLine+10),
		"other ending": `{"time":"2026-01-02T15:04:05Z","kind":"joined","epoch":1}` + "\nhello",
	} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "file")
			write(t, path, content)
			if _, err := Open(path); !errors.Is(err, errInvalid) {
				t.Errorf("got %v; want error errInvalid", err)
			}
			if after, _ := os.ReadFile(path); string(after) != content {
				t.Error("the file was changed")
			}
		})
	}
}

func TestReadErrorsNameTheLine(t *testing.T) {
	good := `{"time":"2026-01-02T15:04:05Z","kind":"joined","epoch":1}` + "\n"
	for name, bad := range map[string]string{
		"not json":   "hello\n",
		"no kind":    `{"time":"2026-01-02T15:04:05Z"}` + "\n",
		"no time":    `{"kind":"joined"}` + "\n",
		"wrong type": `{"time":"2026-01-02T15:04:05Z","kind":"joined","epoch":"x"}` + "\n",
		"too long":   `{"time":"` + strings.Repeat("0", maxLine) + `"}` + "\n",
	} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "events.jsonl")
			write(t, path, good+bad+good)
			var last error
			for _, err := range Read(path) {
				last = err
			}
			if !errors.Is(last, errInvalid) {
				t.Errorf("got %v; want error errInvalid", last)
			}
			golden.Message(t, "error", last)
		})
	}
}

func TestUnknownKindAndField(t *testing.T) {
	e, err := Decode([]byte(`{"time":"2026-01-02T15:04:05Z","kind":"later","x":1}`))
	if err != nil || e.Body.Kind() != "later" {
		t.Errorf("got %+v, %v; want nil error and e.Body.Kind() == \"later\"", e, err)
	}
	e, err = Decode([]byte(`{"time":"2026-01-02T15:04:05Z","kind":"joined","epoch":1,"later":2}`))
	if err != nil || e.Body != (Joined{Epoch: 1}) {
		t.Errorf("got %+v, %v; want nil error and e.Body == (Joined{Epoch: 1})", e, err)
	}
}

func TestLossThatIsNotFinite(t *testing.T) {
	for _, loss := range []float64{math.NaN(), math.Inf(1)} {
		line, err := encode(Event{Time: time.Unix(1, 0), Body: Trained{Loss: Loss(loss)}})
		if err != nil {
			t.Fatal(err)
		}
		e, err := Decode(line)
		if err != nil || !math.IsNaN(float64(e.Body.(Trained).Loss)) {
			t.Errorf("%v became %+v: %v", loss, e, err)
		}
	}
}

func TestFollow(t *testing.T) {
	path := filepath.Join(t.TempDir(), "events.jsonl")
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	seen := make(chan Body)
	go func() {
		defer close(seen)
		for e, err := range Follow(ctx, path) {
			if err != nil {
				t.Error(err)
				return
			}
			seen <- e.Body
		}
	}()
	l, err := Open(path)
	if err != nil {
		t.Fatal(err)
	}
	for epoch := range uint32(3) {
		if err := l.Append(Joined{Epoch: epoch}); err != nil {
			t.Fatal(err)
		}
		if got := <-seen; got != (Joined{Epoch: epoch}) {
			t.Fatalf("got %v, want epoch %d", got, epoch)
		}
	}
	// Events before the end are not lost.
	if err := l.Append(Joined{Epoch: 3}); err != nil {
		t.Fatal(err)
	}
	cancel()
	if got := <-seen; got != (Joined{Epoch: 3}) {
		t.Errorf("got %v after the end, want epoch 3", got)
	}
	for range seen {
		t.Error("an event after the last")
	}
	if err := l.Close(); err != nil {
		t.Error(err)
	}
}

// TestFollowMissesNoShortLog checks that Follow reports a log that is created and closed between
// two checks of the file.
func TestFollowMissesNoShortLog(t *testing.T) {
	path := filepath.Join(t.TempDir(), "events.jsonl")
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		seen := make(chan Body, 1)
		go func() {
			defer close(seen)
			for e, err := range Follow(ctx, path) {
				if err != nil {
					t.Error(err)
				}
				seen <- e.Body
			}
		}()
		synctest.Wait()
		l, err := Open(path)
		if err != nil {
			t.Fatal(err)
		}
		if err := errors.Join(l.Append(Joined{Epoch: 1}), l.Close()); err != nil {
			t.Fatal(err)
		}
		cancel()
		if got := <-seen; got != (Joined{Epoch: 1}) {
			t.Errorf("got %v, want epoch 1", got)
		}
	})
}

func FuzzDecode(f *testing.F) {
	for _, body := range samples {
		line, err := encode(Event{Time: time.Unix(1, 0), Body: body})
		if err != nil {
			f.Fatal(err)
		}
		f.Add(line)
	}
	fuzztest.Run(f, func(t *testing.T, line []byte) {
		e, err := Decode(line)
		if err != nil {
			return
		}
		if _, unknown := e.Body.(unknown); unknown {
			return
		}
		again, err := encode(e)
		if err != nil {
			t.Skip(err) // a time outside RFC 3339, or longer once escaped
		}
		second, err := Decode(again)
		if err != nil {
			t.Fatalf("%s became %s: %v", line, again, err)
		}
		if third, err := encode(second); err != nil || string(third) != string(again) {
			t.Errorf("%s became %s: %v", again, third, err)
		}
	})
}

func write(t *testing.T, path, content string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(content), 0o644); err != nil {
		t.Fatal(err)
	}
}

func readAll(t *testing.T, path string) []Body {
	t.Helper()
	var bodies []Body
	for e, err := range Read(path) {
		if err != nil {
			t.Fatal(err)
		}
		bodies = append(bodies, e.Body)
	}
	return bodies
}

// TestWatch checks that watchers receive the later events of a log, with a file and without one.
func TestWatch(t *testing.T) {
	written, err := Open(filepath.Join(t.TempDir(), "events.jsonl"))
	if err != nil {
		t.Fatal(err)
	}
	for _, l := range []*Log{written, Unwritten()} {
		var seen []Body
		if err := l.Append(Joined{Epoch: 1}); err != nil {
			t.Fatal(err)
		}
		l.Watch(func(e Event) {
			if e.Time.IsZero() {
				t.Error("an event without a time")
			}
			seen = append(seen, e.Body)
		})
		if err := errors.Join(l.Append(Joined{Epoch: 2}), l.Append(Joined{Epoch: 3}), l.Close()); err != nil {
			t.Fatal(err)
		}
		if want := []Body{Joined{Epoch: 2}, Joined{Epoch: 3}}; !reflect.DeepEqual(seen, want) {
			t.Errorf("got %v, want %v", seen, want)
		}
	}
}
