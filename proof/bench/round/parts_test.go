package main

import (
	"errors"
	"fmt"
	"iter"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/psyche-go/psyche/record/event"
)

var epochStart = time.Date(2026, 1, 2, 15, 0, 0, 0, time.UTC)

// at is a moment of the synthetic run, in milliseconds.
func at(ms float64) time.Time { return epochStart.Add(time.Duration(ms * float64(time.Millisecond))) }

// feed yields events in the order of their times.
func feed(events []event.Event) iter.Seq2[event.Event, error] {
	slices.SortStableFunc(events, func(a, b event.Event) int { return a.Time.Compare(b.Time) })
	return func(yield func(event.Event, error) bool) {
		for _, e := range events {
			if !yield(e, nil) {
				return
			}
		}
	}
}

// The times of every round of the synthetic run, in milliseconds from the publication of the round:
// 10 for the message; 20 of waiting; 100 for applying, which includes 40 for decoding; 30 until
// training; 600 for training, which includes 50 for encoding; 5 until the announcement. Then the
// slower client does not wait, and the faster client waits for 200.
const (
	roundMS   = 1200
	pushMS    = 10
	applyEnd  = 130
	trainFrom = 160
	trainEnd  = 760
	sentAt    = 765
)

// clientEvents returns the events of a client in the rounds 1 to last. The slower client announces
// its result 200 ms after the other client.
func clientEvents(last int, slower, details bool) []event.Event {
	var events []event.Event
	add := func(ms float64, body event.Body) { events = append(events, event.Event{Time: at(ms), Body: body}) }
	for step := 1; step <= last; step++ {
		begin := float64(roundMS * (step - 1))
		n, extra := uint32(step), 0.0
		if slower {
			extra = 200
		}
		add(begin+pushMS, event.State{RunState: "RoundTrain", Step: n})
		add(begin+pushMS+1, event.State{RunState: "RoundTrain", Step: n, Witnesses: 1})
		add(begin+applyEnd, event.Applied{Step: n - 1, Seconds: 0.1})
		add(begin+trainEnd+extra, event.Trained{Step: n, Batch: event.Batch{0, 8}, Tokens: 2048, Seconds: (trainEnd - trainFrom + extra) / 1000})
		add(begin+sentAt+extra, event.ResultSent{Step: n})
		if details {
			add(begin+70, event.Span{Step: n, Part: event.SpanDecode, Seconds: 0.04})
			add(begin+trainEnd+extra, event.Span{Step: n, Part: event.SpanEncode, Seconds: 0.05})
			add(begin+985, event.ResultsHeld{Step: n, Held: 2, Batches: 2, FetchSeconds: 0.012})
		}
		add(begin+1000, event.WitnessSent{Step: n})
		add(begin+1030, event.State{RunState: "RoundWitness", Step: n})
		add(begin+1031, event.Wire{Step: n, P2PSent: 500 * uint64(step), ServerReceived: 90 * uint64(step)})
	}
	add(float64(roundMS*last)+pushMS, event.State{RunState: "Cooldown", Step: uint32(last) + 1})
	add(float64(roundMS*last)+pushMS+2000, event.State{RunState: "Finished", Step: uint32(last) + 1})
	return events
}

func hostEvents(last int, details bool) []event.Event {
	var events []event.Event
	add := func(ms float64, body event.Body) { events = append(events, event.Event{Time: at(ms), Body: body}) }
	for step := 1; step <= last; step++ {
		begin := float64(roundMS * (step - 1))
		add(begin, event.State{RunState: "RoundTrain", Step: uint32(step)})
		add(begin+1020, event.State{RunState: "RoundWitness", Step: uint32(step)})
		if details {
			add(begin+999, event.Span{Step: uint32(step), Part: event.SpanCommit, Seconds: 0.004})
			add(begin+1019, event.Span{Step: uint32(step), Part: event.SpanCommit, Seconds: 0.003})
		}
	}
	add(float64(roundMS*last), event.State{RunState: "Cooldown", Step: uint32(last) + 1})
	return events
}

func synthetic(t *testing.T, details bool) summary {
	t.Helper()
	const last = 5
	var clients []*clientRecord
	for _, slower := range []bool{false, true} {
		c, err := readClient(feed(clientEvents(last, slower, details)))
		if err != nil {
			t.Fatal(err)
		}
		clients = append(clients, c)
	}
	host, err := readHost(feed(hostEvents(last, details)))
	if err != nil {
		t.Fatal(err)
	}
	s, window, err := summarise(clients, host)
	if err != nil {
		t.Fatal(err)
	}
	if want := (span{from: at(roundMS + pushMS), to: at(4*roundMS + pushMS)}); window != want {
		t.Errorf("window is %v, want %v", window, want)
	}
	return s
}

func near(t *testing.T, subject string, got, want float64) {
	t.Helper()
	if math.Abs(got-want) > 1e-6*max(1, math.Abs(want)) {
		t.Errorf("%s is %v, want %v", subject, got, want)
	}
}

func TestSyntheticRun(t *testing.T) {
	s := synthetic(t, true)
	if s.Rounds != 3 { // of 5, without the first and the last
		t.Errorf("%d rounds count, want 3", s.Rounds)
	}
	near(t, "round", s.RoundMS.Median, roundMS)
	near(t, "training share", s.TrainShare.Mean, (600.0+800)/2/roundMS)
	near(t, "computing share", s.ComputeShare.Mean, (700.0+900)/2/roundMS)
	near(t, "tokens per second", s.TokensPerSecond, 2*3*2048/(3*roundMS/1000.0))
	near(t, "bytes to peers", s.PeerBytes, 500)
	near(t, "bytes from the server", s.ServerBytes, 90)
	near(t, "cooldown", s.CooldownSeconds, 2)
	near(t, "seconds per sequence", s.PerSequence, (0.6+0.8)/2/8)
	// Means of the faster and the slower client.
	for part, want := range map[string]float64{
		partDecide: 20, partDecode: 40, partApply: 60, partTokens: 30, partTrain: 650, partEncode: 50,
		partAnnounce: 5, partSlowest: 100, partGossip: 8, partFetch: 12, partWitness: 15, partQuorum: 20,
		partLate: 180, partPush: 10,
	} {
		near(t, part, s.Parts[part].Mean, want)
	}
	near(t, "commit", s.CommitMS.Median, 7)
	if len(s.NotTold) > 0 {
		t.Errorf("parts without a log: %v, want none", s.NotTold)
	}
}

// TestAbsentEvents reads logs without the events that were added later: their parts are missing,
// and their time is in the parts that contained() names.
func TestAbsentEvents(t *testing.T) {
	s := synthetic(t, false)
	near(t, "training share", s.TrainShare.Mean, (600.0+800)/2/roundMS)
	for part, want := range map[string]float64{partApply: 100, partTrain: 700, partWitness: 35} {
		near(t, part, s.Parts[part].Mean, want)
	}
	var text strings.Builder
	if err := printTables(&text, []summary{s, {Row: "far", Skipped: "no namespaces"}}); err != nil {
		t.Fatal(err)
	}
	for _, part := range []string{partDecode, partEncode, partGossip, partFetch, partCommit} {
		if _, found := s.Parts[part]; found {
			t.Errorf("%s is listed, but is missing in all logs", part)
		}
		if note := part + " (" + absent + "): "; !strings.Contains(text.String(), note) {
			t.Errorf("no note %q in\n%s", note, text.String())
		}
	}
	if !strings.Contains(text.String(), "far: skipped, no namespaces") {
		t.Errorf("the skipped row is missing in\n%s", text.String())
	}
}

// TestPartsAddUp analyzes rounds whose events arrive in any order, as on a machine with delayed
// processes.
func TestPartsAddUp(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		moment := rapid.Custom(func(t *rapid.T) time.Time {
			if rapid.IntRange(0, 9).Draw(t, "absent") == 0 {
				return time.Time{}
			}
			return at(rapid.Float64Range(-100, 1100).Draw(t, "ms"))
		})
		r := &clientRound{start: at(0), end: at(1000), resultSent: moment.Draw(t, "sent"), held: moment.Draw(t, "held"), witnessSent: moment.Draw(t, "witness")}
		c := &clientRecord{}
		for i := range rapid.IntRange(0, 6).Draw(t, "spans") {
			part := rapid.SampledFrom(computing).Draw(t, fmt.Sprint("part ", i))
			from := rapid.Float64Range(-100, 1100).Draw(t, "from")
			s := span{part, at(from), at(from + rapid.Float64Range(0, 500).Draw(t, "length"))}
			if part == partTrain {
				r.trained = s
			}
			c.spans = append(c.spans, s)
		}
		h := &hostRecord{witness: map[uint32]time.Time{1: moment.Draw(t, "quorum")}, over: map[uint32]time.Time{1: moment.Draw(t, "over")}}
		d := dissect(1, r, c, h, moment.Draw(t, "slowest"))
		sum := time.Duration(0)
		for part, took := range d.parts {
			if took < 0 || !slices.Contains(parts, part) {
				t.Fatalf("%s took %v", part, took)
			}
			sum += took
		}
		if sum != d.total || sum != time.Second {
			t.Fatalf("parts add up to %v of %v: %v", sum, d.total, d.parts)
		}
	})
}

// TestLateAcknowledgement has an acknowledgement that arrives after the host has moved on: from
// then on, the client waits for the next round.
func TestLateAcknowledgement(t *testing.T) {
	r := &clientRound{start: at(0), end: at(1000), resultSent: at(500), held: at(550), witnessSent: at(700)}
	h := &hostRecord{witness: map[uint32]time.Time{1: at(640)}, over: map[uint32]time.Time{1: at(940)}}
	d := dissect(1, r, &clientRecord{}, h, at(520))
	want := map[string]time.Duration{
		partAnnounce: 500, partSlowest: 20, partGossip: 30, partWitness: 90, partLate: 300, partPush: 60,
	}
	for part, ms := range want {
		if d.parts[part] != ms*time.Millisecond {
			t.Errorf("%s took %v, want %v", part, d.parts[part], ms*time.Millisecond)
		}
	}
}

func TestNoInnerRounds(t *testing.T) {
	c, err := readClient(feed(clientEvents(2, false, false)))
	if err != nil {
		t.Fatal(err)
	}
	host, err := readHost(feed(hostEvents(2, false)))
	if err != nil {
		t.Fatal(err)
	}
	if s, _, err := summarise([]*clientRecord{c}, host); !errors.Is(err, errNoInnerRounds) {
		t.Errorf("summary of two rounds is %+v, %v; want %v", s, err, errNoInnerRounds)
	}
	if _, err := readClient(feed(nil)); err == nil {
		t.Error("an empty log is read without an error")
	}
	if _, err := readHost(feed(nil)); err == nil {
		t.Error("an empty log of a server is read without an error")
	}
}
