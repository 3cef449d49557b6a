package audits

import (
	"bytes"
	"context"
	"errors"
	"testing"

	"github.com/psyche-go/psyche/assign"
	"github.com/psyche-go/psyche/audit"
	"github.com/psyche-go/psyche/audit/toy"
	"github.com/psyche-go/psyche/coordinator"
	"github.com/psyche-go/psyche/distro/codec"
	"github.com/psyche-go/psyche/identity"
)

var trainer = coordinator.ClientID{1}

func result(step uint32, head Head) Result {
	head.Step = step
	return Result{Owner: trainer, Commitment: [32]byte{byte(step)}, Size: 10, Head: head}
}

// TestPastKeepsTheNewestRounds, within its limit, and forgets what it cannot be sure to go on from.
func TestPastKeepsTheNewestRounds(t *testing.T) {
	p := Past{Limit: 55}
	dropped := 0
	for step := uint32(1); step <= 20; step++ {
		dropped += len(p.Add(Round{Step: step, EpochStart: 1, Results: []Result{result(step, Head{EpochStart: 1, Counted: true})}}))
	}
	if rounds, ok := p.Since(15, 20); !ok || len(rounds) != 5 || rounds[0].Step != 20 {
		t.Errorf("%d rounds, %v", len(rounds), ok)
	}
	if _, ok := p.Since(14, 20); ok || dropped != 15 {
		t.Errorf("more than the limit is kept; %d were dropped", dropped)
	}
	if heads := p.Heads(trainer, 20); len(heads) != keptHeads-1 || heads[0].Step != 19 {
		t.Errorf("heads %+v", heads)
	}
	if p.Add(Round{Step: 25, EpochStart: 25}); len(p.rounds) != 1 {
		t.Errorf("%d rounds after a gap", len(p.rounds))
	}
	if dropped := p.Shrink(); len(dropped) != 0 {
		t.Errorf("%d were dropped of one round", len(dropped))
	}
	p.Add(Round{Step: 26, EpochStart: 25, Results: []Result{result(26, Head{EpochStart: 25})}})
	p.Add(Round{Step: 22, EpochStart: 22, Results: []Result{result(22, Head{EpochStart: 22})}}) // the run went back
	if heads := p.Heads(trainer, 100); heads[0].Step != 22 {
		t.Errorf("heads %+v", heads)
	}
	blobs := 0
	p.EachBlob(func([32]byte) { blobs++ })
	if dropped := p.Forget(); blobs != 1 || len(dropped) != 1 || len(p.Heads(trainer, 100)) != 0 {
		t.Errorf("%d blobs, %d dropped", blobs, len(dropped))
	}
}

// TestPastForgetsTrainers: newcomers cannot fill the memory.
func TestPastForgetsTrainers(t *testing.T) {
	var p Past
	for i := range maxTrainers + 50 {
		p.note(coordinator.ClientID{byte(i), byte(i >> 8)}, Head{Step: uint32(i + 1)})
	}
	if len(p.heads) != maxTrainers || len(p.Heads(coordinator.ClientID{0, 0}, 9999)) != 0 {
		t.Errorf("%d trainers", len(p.heads))
	}
}

// TestClaims: what a momentum may go on from.
func TestClaims(t *testing.T) {
	counted, given := Head{Step: 8, EpochStart: 5, Root: [32]byte{8}, Counted: true, Previous: 7}, Head{Step: 7, EpochStart: 5, Root: [32]byte{7}}
	for name, c := range map[string]struct {
		heads    []Head
		since    uint32
		lag      uint32
		previous uint32
		shown    []Head
		earlier  uint32

		claims   int // 0: a breach
		returned bool
		root     byte
		loose    bool
	}{
		"newest":                      {heads: []Head{counted}, lag: 1, previous: 8, claims: 1, root: 8},
		"newest was given back":       {heads: []Head{given}, lag: 1, previous: 7, claims: 1, returned: true, root: 7},
		"not yet settled":             {heads: []Head{{Step: 9, EpochStart: 5, Root: [32]byte{9}}}, lag: 2, previous: 9, claims: 1, root: 9},
		"an older one":                {heads: []Head{counted, given}, lag: 1, previous: 7},
		"a later one":                 {heads: []Head{counted}, lag: 1, previous: 10, loose: true},
		"the first":                   {lag: 1, claims: 1},
		"afresh, as the run knows":    {heads: []Head{counted}, since: 9, lag: 1, claims: 1},
		"afresh, of its own accord":   {heads: []Head{counted}, since: 5, lag: 1},
		"a late one, shown":           {heads: []Head{counted}, lag: 1, previous: 9, shown: []Head{{Step: 9, Previous: 8, Root: [32]byte{9}}}, claims: 2, returned: true, root: 9, loose: true},
		"a late one, not shown":       {heads: []Head{counted}, lag: 1, previous: 9, loose: true},
		"a late one leaves one out":   {heads: []Head{counted}, lag: 1, previous: 9, shown: []Head{{Step: 9, Previous: 7}}, loose: true},
		"given back meanwhile":        {heads: []Head{counted, given}, lag: 2, previous: 8, earlier: 7, claims: 1, root: 8},
		"not given back, but was":     {heads: []Head{counted, given}, lag: 2, previous: 8},
		"given back, but counted":     {heads: []Head{counted, {Step: 7, EpochStart: 5, Counted: true}}, lag: 2, previous: 8, earlier: 7},
		"given back in another epoch": {heads: []Head{{Step: 8, EpochStart: 8, Previous: 7, Counted: true, Root: [32]byte{8}}, {Step: 7, EpochStart: 5}}, lag: 2, previous: 8, earlier: 7},
		"with a lag of one":           {heads: []Head{counted, given}, lag: 1, previous: 8, earlier: 7},
	} {
		t.Run(name, func(t *testing.T) {
			head := Head{Step: 10, EpochStart: 5, Previous: c.previous}
			x := Case{Result: Result{Head: head}, Heads: c.heads, Since: c.since, Lag: c.lag}
			e := Evidence{Opening: audit.Opening{Step: 10, Previous: c.previous, Earlier: c.earlier}, Heads: c.shown}
			claims, err := x.Claims(codec.Header{Step: 10, Previous: c.previous}, nil, e)
			if errors.Is(err, ErrBreach) != (c.claims == 0) || len(claims) != c.claims {
				t.Fatalf("%d claims, %v", len(claims), err)
			}
			if x.Bound() == c.loose {
				t.Errorf("bound: %v", x.Bound())
			}
			if c.claims > 0 && (claims[0].PreviousReturned != c.returned || claims[0].PreviousRoot[0] != c.root) {
				t.Errorf("%+v", claims[0])
			}
		})
	}
}

func TestCase(t *testing.T) {
	var p Past
	for step := uint32(5); step <= 8; step++ {
		p.Add(Round{Step: step, EpochStart: 5, Results: []Result{result(step, Head{EpochStart: 5})}})
	}
	for _, c := range []struct{ step, lag, weights uint32 }{{8, 1, 7}, {8, 2, 6}, {5, 1, 4}, {6, 2, 4}} {
		x, err := p.Case(c.step, trainer, 0, c.lag)
		if err != nil || x.Weights != c.weights || len(x.Heads) != int(c.step-5) {
			t.Errorf("%+v: %+v, %v", c, x, err)
		}
	}
	if _, err := p.Case(9, trainer, 0, 1); !errors.Is(err, ErrNotKept) {
		t.Errorf("no result: %v", err)
	}
}

// evidence opens a step of a toy.
func evidence(t testing.TB) Evidence {
	o := toy.Optimizer{Trainer: trainer}
	for step := uint32(1); step <= 2; step++ {
		if _, err := o.Step(step, assign.BatchID{End: 1}, toy.Gradient([32]byte{}, nil)); err != nil {
			t.Fatal(err)
		}
	}
	opening, err := o.Open(2, []uint32{1, 4})
	if err != nil {
		t.Fatal(err)
	}
	return Evidence{Opening: opening, Heads: []Head{{Step: 1, Previous: 0, Root: [32]byte{9}}}}
}

func TestEvidence(t *testing.T) {
	want, shapes := evidence(t), toy.Shapes()
	b, err := want.Encode(shapes)
	if err != nil || len(b) > MaxEvidenceSize(shapes) {
		t.Fatal(len(b), err)
	}
	got, err := DecodeEvidence(b, shapes)
	if err != nil || len(got.Opening.Chunks) != 2 || len(got.Heads) != 1 || got.Heads[0] != want.Heads[0] {
		t.Errorf("%+v, %v", got, err)
	}
	for name, change := range map[string]func(b []byte) []byte{
		"empty":          func([]byte) []byte { return nil },
		"magic":          func(b []byte) []byte { b[0]++; return b },
		"version":        func(b []byte) []byte { b[4]++; return b },
		"too many heads": func(b []byte) []byte { b[5] = maxHeads + 1; return b },
		"no opening":     func(b []byte) []byte { return b[:evidenceHeader+headSize] },
		"a byte more":    func(b []byte) []byte { return append(b, 0) },
		"far too long":   func(b []byte) []byte { return append(b, make([]byte, MaxEvidenceSize(shapes))...) },
	} {
		if _, err := DecodeEvidence(change(bytes.Clone(b)), shapes); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
	if _, err := (Evidence{Opening: want.Opening, Heads: make([]Head, maxHeads+1)}).Encode(shapes); !errors.Is(err, ErrMalformed) {
		t.Errorf("too many heads: %v", err)
	}
}

func FuzzEvidence(f *testing.F) {
	shapes := toy.Shapes()
	b, err := evidence(f).Encode(shapes)
	if err != nil {
		f.Fatal(err)
	}
	f.Add(b)
	f.Add([]byte("PSYE\x01\x00"))
	f.Fuzz(func(t *testing.T, b []byte) {
		e, err := DecodeEvidence(b, shapes)
		if err != nil {
			return
		}
		if again, err := e.Encode(shapes); err != nil || !bytes.Equal(again, b) {
			t.Errorf("two encodings of one value: %v", err)
		}
	})
}

func TestReport(t *testing.T) {
	prints := []audit.Print{{Chunk: 3, Length: 1, Projection: -0.5}}
	r := Report{Salt: [32]byte{5}, Verdict: audit.Verdict{Outcome: audit.Passed, Chunks: []audit.Said{{Print: prints[0]}}}}
	b, err := r.Encode()
	if err != nil || len(b) > MaxReportSize {
		t.Fatal(len(b), err)
	}
	got, err := DecodeReport(b)
	if err != nil || got.Seal() != r.Seal() || got.Seal() != audit.Seal(audit.SealPrints, r.Salt, audit.EncodePrints(prints)) {
		t.Errorf("%+v, %v", got, err)
	}
	for _, b := range [][]byte{nil, b[:40], append(bytes.Clone(b), 0), make([]byte, MaxReportSize+1)} {
		if _, err := DecodeReport(b); err == nil {
			t.Errorf("%d bytes: no error", len(b))
		}
	}
}

// TestShownToWhoMayAsk: nobody else, and nobody for ever.
func TestShownToWhoMayAsk(t *testing.T) {
	s, friend, stranger := NewShown(), identity.ID{1}, identity.ID{2}
	ask := func(from identity.ID, step byte) error {
		_, err := s.answerOpening(context.Background(), from, []byte{step, 0, 0, 0})
		return err
	}
	s.Allow(7, friend)
	if err := ask(friend, 7); !errors.Is(err, ErrNotKept) {
		t.Errorf("before it is made: %v", err)
	}
	s.Keep(7, []byte("evidence"))
	if err := ask(stranger, 7); !errors.Is(err, ErrRefused) {
		t.Errorf("a stranger: %v", err)
	}
	for range maxAnswers {
		if err := ask(friend, 7); err != nil {
			t.Error(err)
		}
	}
	if err := ask(friend, 7); !errors.Is(err, ErrRefused) {
		t.Errorf("once too often: %v", err)
	}
	s.KeepReport(7, []byte("report"))
	if b, err := s.answerReport(context.Background(), stranger, []byte{7, 0, 0, 0}); err != nil || string(b) != "report" {
		t.Errorf("%q, %v", b, err)
	}
	for step := uint32(8); step < 40; step++ {
		s.Keep(step, nil)
		s.KeepReport(step, nil)
	}
	if len(s.evidence) != keptShown || len(s.reports) != keptShown || s.Evidence(7) != nil {
		t.Errorf("%d and %d are kept", len(s.evidence), len(s.reports))
	}
	for _, request := range [][]byte{nil, {1, 2, 3}, {1, 2, 3, 4, 5}} {
		if _, err := s.answerOpening(context.Background(), friend, request); !errors.Is(err, ErrMalformed) {
			t.Errorf("%v: %v", request, err)
		}
	}
}
