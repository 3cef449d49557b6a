package evidence

import (
	"bytes"
	"errors"
	"math"
	"slices"
	"testing"

	"lukechampine.com/blake3"

	"github.com/psyche-go/psyche/base/fuzztest"
	"github.com/psyche-go/psyche/base/identity"
	"github.com/psyche-go/psyche/core/assign"
	"github.com/psyche-go/psyche/core/audit"
	"github.com/psyche-go/psyche/core/audit/toy"
	"github.com/psyche-go/psyche/core/codec"
	"github.com/psyche-go/psyche/record/backend/backendtest"
	"github.com/psyche-go/psyche/record/config"
	"github.com/psyche-go/psyche/record/wire"
)

var (
	run   = [32]byte{7}
	rules = Rules{Chunk: 1, TopK: 1}
)

const step = 2

// shown returns the evidence about the second result of author. The result is altered by change, if
// it is not nil, and announced by signer.
func shown(t testing.TB, author, signer identity.Key, change func([]codec.TensorResult)) File {
	t.Helper()
	part := toy.Part{Optimizer: toy.Optimizer{Trainer: author.ID()}}
	var e File
	for s := uint32(1); s <= step; s++ {
		if s > 1 {
			header, _, err := toy.Decode(e.Result)
			if err != nil {
				t.Fatal(err)
			}
			e.Previous = header.Momentum
		}
		var err error
		if e.Result, err = part.Optimizer.Step(s, assign.BatchID{Start: 1, End: 2}, toy.Gradient([32]byte{byte(s)}, nil), [32]byte{3}); err != nil {
			t.Fatal(err)
		}
	}
	opening, err := part.Open(step, []uint32{1, 5, 30})
	if err == nil {
		e.Opening, err = opening.Encode(part.Shapes())
	}
	if err != nil {
		t.Fatal(err)
	}
	if change != nil {
		header, results, err := toy.Decode(e.Result)
		if err != nil {
			t.Fatal(err)
		}
		change(results)
		layouts := []codec.TensorLayout{{Chunks: 32, ChunkSize: 1, K: 1}}
		if e.Result, err = codec.Encode(header, layouts, false, results); err != nil {
			t.Fatal(err)
		}
	}
	e.Announcement = announcement(signer, e.Result)
	return e
}

func announcement(signer identity.Key, result []byte) []byte {
	return wire.SignAnnouncement(signer, wire.ResultAnnouncement{
		Run: run, Step: step, Batch: assign.BatchID{Start: 1, End: 2}, Blob: blake3.Sum256(result), Size: uint32(len(result)), Replica: [32]byte{4},
	})
}

func shapes(t testing.TB) audit.Shapes {
	t.Helper()
	s, err := Shapes([][]int64{{32}}, rules)
	if err != nil || !slices.Equal(s, toy.Shapes()) {
		t.Fatalf("shapes are %+v, %v", s, err)
	}
	return s
}

// TestExamine checks that a cheat's own signatures prove its fault. Evidence against an honest
// member proves nothing, even if the accuser alters it.
func TestExamine(t *testing.T) {
	cheat, accuser := backendtest.Key(1), backendtest.Key(2)
	negated := func(results []codec.TensorResult) {
		for i := range results[0].Values {
			results[0].Values[i] *= -1
		}
	}
	first := func(results []codec.TensorResult) { results[0].Values[5] *= 2 }
	honest := shown(t, cheat, cheat, nil)
	dishonest := shown(t, cheat, cheat, negated)
	for name, c := range map[string]struct {
		e     File
		run   [32]byte
		want  Finding
		wrong bool
	}{
		"honest":                  {honest, run, Finding{cheat.ID(), step, audit.FaultNone, 3, 0}, false},
		"negated":                 {dishonest, run, Finding{cheat.ID(), step, audit.FaultSent, 3, 3}, false},
		"one value":               {shown(t, cheat, cheat, first), run, Finding{cheat.ID(), step, audit.FaultSent, 3, 1}, false},
		"of another run":          {dishonest, [32]byte{8}, Finding{}, true},
		"signed by the accuser":   {shown(t, cheat, accuser, negated), run, Finding{}, true},
		"another result":          {File{dishonest.Announcement, honest.Result, dishonest.Previous, dishonest.Opening}, run, Finding{}, true},
		"another result, honest":  {File{honest.Announcement, dishonest.Result, honest.Previous, honest.Opening}, run, Finding{}, true},
		"another opening":         {File{honest.Announcement, honest.Result, honest.Previous, changed(honest.Opening, 60)}, run, Finding{}, true},
		"another root before":     {File{honest.Announcement, honest.Result, [32]byte{1}, honest.Opening}, run, Finding{}, true},
		"nothing announced":       {File{nil, honest.Result, honest.Previous, honest.Opening}, run, Finding{}, true},
		"nothing opened":          {File{honest.Announcement, honest.Result, honest.Previous, nil}, run, Finding{}, true},
		"an announcement changed": {File{changed(honest.Announcement, 100), honest.Result, honest.Previous, honest.Opening}, run, Finding{}, true},
	} {
		t.Run(name, func(t *testing.T) {
			decoded, err := Decode(c.e.Encode())
			if err != nil {
				t.Fatal(err)
			}
			got, err := decoded.Examine(c.run, shapes(t), rules)
			if errors.Is(err, ErrInvalid) != c.wrong || got != c.want {
				t.Errorf("found %+v, %v; want %+v", got, err, c.want)
			}
		})
	}
	if _, err := dishonest.Examine(run, audit.Shapes{{Chunks: 31, Rows: 1, Cols: 1, K: 1}}, rules); !errors.Is(err, ErrInvalid) {
		t.Errorf("with a different model: %v", err)
	}
}

// TestExamineLocalSteps checks that for levels, the signs show whether the member sent the values
// of its pseudo-gradient.
func TestExamineLocalSteps(t *testing.T) {
	cheat := backendtest.Key(1)
	local, audited := RulesOf(config.Optimizer{LocalSteps: &config.LocalSteps{CompressionTopK: 1, CompressionChunk: 1, ValueBits: 2}})
	if want := (Rules{Chunk: 1, TopK: 1, Levels: 2}); !audited || local != want {
		t.Fatalf("rules %+v, want %+v", local, want)
	}
	if _, audited := RulesOf(config.Optimizer{Dummy: &config.Dummy{}}); audited {
		t.Error("a run without training has rules")
	}
	for _, turned := range []bool{false, true} {
		e := shown(t, cheat, cheat, nil)
		header, results, err := toy.Decode(e.Result)
		if err != nil {
			t.Fatal(err)
		}
		layouts := []codec.TensorLayout{{Chunks: 32, ChunkSize: 1, K: 1}}
		levels := layouts[0].NewLevels()
		for i, v := range results[0].Values {
			levels.Counts[i], levels.Units[i], levels.Values[i] = 1, 40, float32(math.Copysign(2, float64(v)))
			if turned {
				levels.Values[i] *= -1
			}
		}
		if e.Result, err = codec.EncodeLevels(header, layouts, 2, []codec.TensorResult{levels}); err != nil {
			t.Fatal(err)
		}
		e.Announcement = announcement(cheat, e.Result)
		want := Finding{cheat.ID(), step, audit.FaultNone, 3, 0}
		if turned {
			want.Fault, want.Faulty = audit.FaultSent, 3
		}
		if got, err := e.Examine(run, shapes(t), local); err != nil || got != want {
			t.Errorf("turned %v: found %+v, %v; want %+v", turned, got, err, want)
		}
	}
}

func changed(b []byte, at int) []byte {
	b = slices.Clone(b)
	b[at] ^= 1
	return b
}

// TestDecodeRefuses checks that Decode refuses lengths that do not fit, bytes after the last part
// and other versions.
func TestDecodeRefuses(t *testing.T) {
	whole := File{Announcement: []byte{1}, Result: []byte{2, 3}, Opening: []byte{4}}.Encode()
	for name, b := range map[string][]byte{
		"nothing": nil, "cut": whole[:len(whole)-1], "longer": append(slices.Clone(whole), 0), "magic": changed(whole, 0), "version": changed(whole, 4),
		"a length": changed(whole, headerSize-1), "an announcement": File{Announcement: make([]byte, wire.MaxAnnouncementSize+1)}.Encode(),
	} {
		if e, err := Decode(b); !errors.Is(err, ErrInvalid) {
			t.Errorf("%s: got %+v, %v; want error ErrInvalid", name, e, err)
		}
	}
}

func FuzzDecode(f *testing.F) {
	key := backendtest.Key(1)
	f.Add(shown(f, key, key, nil).Encode())
	f.Add(File{}.Encode())
	fuzztest.Run(f, func(t *testing.T, b []byte) {
		e, err := Decode(b)
		if err != nil {
			return
		}
		if !bytes.Equal(e.Encode(), b) {
			t.Fatal("decoding and encoding changed bytes")
		}
		if found, err := e.Examine(run, shapes(t), rules); err == nil && found.Accused != key.ID() {
			t.Fatalf("a member is accused without a signature: %+v", found)
		}
	})
}
