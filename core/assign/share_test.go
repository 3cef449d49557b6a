package assign

import (
	"math"
	"slices"
	"testing"

	"github.com/psyche-go/psyche/base/fuzztest"
	"pgregory.net/rapid"
)

// drawLevels draws the levels of up to 256 trainers: a few speeds, or any.
func drawLevels(t *rapid.T) []uint8 {
	most := rapid.SampledFrom([]int{1, 3, 16, 256}).Draw(t, "most trainers")
	level := rapid.Uint8()
	if rapid.Bool().Draw(t, "few speeds") {
		level = rapid.SampledFrom(rapid.SliceOfN(rapid.Uint8Range(60, 140), 1, 4).Draw(t, "speeds"))
	}
	return rapid.SliceOfN(level, 1, most).Draw(t, "levels")
}

func TestWeights(t *testing.T) {
	for above := range 2*ShareRange + 1 {
		levels := []uint8{100, 100, uint8(100 - ShareRange + above)}
		weights, _ := weigh(levels, Reference(levels))
		want := math.Round(256*math.Exp2(float64(above%levelsPerOctave)/levelsPerOctave)) * math.Exp2(float64(above/levelsPerOctave))
		if above == ShareRange+1 {
			want = float64(weights[0])
		}
		if float64(weights[2]) != want {
			t.Errorf("level %d: weight %d, want %.0f", levels[2], weights[2], want)
		}
	}
}

func TestSharesOfSpeeds(t *testing.T) {
	tests := []struct {
		name      string
		levels    []uint8
		batchSize uint32
		want      []uint32
	}{
		{"speeds 1:4:16", []uint8{80, 96, 112}, 420, []uint32{20, 80, 320}},
		{"the fastest gets the rest", []uint8{80, 112, 96}, 424, []uint32{20, 324, 80}},
		{"equal levels", []uint8{9, 9, 9}, 8, []uint32{3, 3, 2}},
		{"fewer sequences than trainers", []uint8{9, 9, 9}, 2, []uint32{1, 1, 0}},
		{"one sequence for the fastest", []uint8{9, 10, 20}, 1, []uint32{0, 0, 1}},
		{"no levels", []uint8{0, 0, 0, 0}, 9, []uint32{3, 2, 2, 2}},
		{"one level above the reference level", []uint8{80, 81, 80}, 9, []uint32{3, 3, 3}},
		{"at most 16 times", []uint8{80, 80, 255}, 1800, []uint32{100, 100, 1600}},
		{"at least 1/16", []uint8{1, 80, 80}, 3300, []uint32{100, 1600, 1600}},
		{"a trainer without a level", []uint8{0, 80, 80}, 3300, []uint32{100, 1600, 1600}},
	}
	for _, test := range tests {
		if got := shares(test.levels, test.batchSize); !slices.Equal(got, test.want) {
			t.Errorf("%s: got %v, want %v", test.name, got, test.want)
		}
	}
}

func TestCutFastest(t *testing.T) {
	tests := []struct {
		name         string
		levels, want []uint8
	}{
		{"one member", []uint8{200}, []uint8{200}},
		{"two members", []uint8{200, 80}, []uint8{96, 80}},
		{"speeds 1:4:16", []uint8{80, 112, 96}, []uint8{80, 112, 96}},
		{"equal levels", []uint8{80, 80, 80, 80}, []uint8{80, 80, 80, 80}},
		{"one of ten", []uint8{80, 80, 80, 80, 80, 80, 80, 80, 80, 97}, []uint8{80, 80, 80, 80, 80, 80, 80, 80, 80, 96}},
		{"three of ten", []uint8{80, 80, 90, 80, 112, 80, 80, 98, 80, 140}, []uint8{80, 80, 90, 80, 106, 80, 80, 98, 80, 106}},
		{"four of ten", []uint8{80, 80, 80, 80, 112, 80, 140, 140, 80, 140}, []uint8{80, 80, 80, 80, 112, 80, 128, 128, 80, 128}},
		{"without levels", []uint8{0, 0, 0, 100}, []uint8{0, 0, 0, 16}},
		{"highest levels", []uint8{250, 250, 255}, []uint8{250, 250, 255}},
	}
	for _, test := range tests {
		got := slices.Clone(test.levels)
		if CutFastest(got); !slices.Equal(got, test.want) {
			t.Errorf("%s: got %v, want %v", test.name, got, test.want)
		}
	}
}

// TestManyRepeatAnyBatch checks that at least a third of the members are at most four times slower than any member,
// and that fewer levels change.
func TestManyRepeatAnyBatch(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		levels := drawLevels(t)
		cut := slices.Clone(levels)
		CutFastest(cut)
		near, changed := 0, 0
		for i, level := range cut {
			if int(level) >= int(slices.Max(cut))-auditRange {
				near++
			}
			if level != levels[i] {
				changed++
			}
		}
		if fewer := max(1, (len(levels)-1)/3); near <= fewer && near < len(levels) || changed > fewer {
			t.Fatalf("%v became %v: %d are near the highest level, %d changed", levels, cut, near, changed)
		}
	})
}

// TestShares checks what every division obeys. No trainer needs longer than the ideal time, which all
// trainers together need if sequences can be divided, or it has one more sequence than it could train
// in that time, and no slower trainer has such a sequence without it.
func TestShares(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		levels := drawLevels(t)
		batchSize := rapid.Uint32Range(0, 1<<24).Draw(t, "batch size")
		if rapid.Bool().Draw(t, "small") {
			batchSize %= 1000
		}
		checkShares(t, levels, batchSize)
	})
}

func FuzzShares(f *testing.F) {
	f.Add([]byte{80, 96, 112}, uint32(420))
	f.Add([]byte{0, 255}, uint32(1<<24))
	f.Add([]byte{7}, uint32(math.MaxUint32))
	fuzztest.Run(f, func(t *testing.T, levels []byte, batchSize uint32) {
		if len(levels) > 0 && len(levels) <= 256 {
			checkShares(t, levels, batchSize)
		}
	})
}

func checkShares(t interface{ Fatalf(string, ...any) }, levels []uint8, batchSize uint32) {
	sizes := shares(levels, batchSize)
	weights, sum := weigh(levels, Reference(levels))
	total := uint64(0)
	for i, size := range sizes {
		total += uint64(size)
		exact := uint64(batchSize) * weights[i] / sum
		if uint64(size) != exact && uint64(size) != exact+1 {
			t.Fatalf("trainer %d: %d sequences, want %d or one more", i, size, exact)
		}
		for j := range i {
			if weights[i] == weights[j] && (sizes[j] < size || sizes[j] > size+1) || weights[i] > weights[j] && sizes[j] > size || weights[i] < weights[j] && sizes[j] < size {
				t.Fatalf("levels %d and %d: %d and %d sequences", levels[j], levels[i], sizes[j], size)
			}
			iMore, jMore := uint64(size) > exact, uint64(sizes[j]) > uint64(batchSize)*weights[j]/sum
			if weights[i] < weights[j] && iMore && !jMore || weights[i] > weights[j] && jMore && !iMore {
				t.Fatalf("levels %d and %d: only the slower trainer has an additional sequence", levels[j], levels[i])
			}
		}
	}
	if total != uint64(batchSize) {
		t.Fatalf("%d sequences, want %d", total, batchSize)
	}
	if lowest, highest := slices.Min(weights), slices.Max(weights); highest > 256*lowest {
		t.Fatalf("weights from %d to %d", lowest, highest)
	}
}

// TestReferenceLevel checks that less than a third of the trainers cannot move the reference level out of
// the levels of the other trainers, so they get at most 16 times the share of one of them.
func TestReferenceLevel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		honest := rapid.SliceOfN(rapid.Uint8(), 3, 170).Draw(t, "levels")
		others := rapid.SliceOfN(rapid.Uint8(), 1, (len(honest)-1)/2).Draw(t, "levels of others")
		weights, _ := weigh(slices.Concat(honest, others), Reference(slices.Concat(honest, others)))
		const reference = 256 << (ShareRange / levelsPerOctave)
		if honest := weights[:len(honest)]; slices.Min(honest) > reference || slices.Max(honest) < reference {
			t.Fatalf("weights %v do not enclose the weight of the reference level, %d", honest, reference)
		}
	})
}

func TestBatchesBySpeed(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		seed := rapid.Uint64().Draw(t, "seed")
		levels := drawLevels(t)
		percent := rapid.IntRange(0, 100).Draw(t, "percent")
		batchSize := rapid.Uint32Range(1, 5000).Draw(t, "batch size")
		assignments := Batches(seed, len(levels), percent, 100, batchSize, levels)
		next, owners := uint64(100), []int{}
		for _, a := range assignments {
			if a.Batch.Start != next || a.Batch.End <= next {
				t.Fatalf("batch %v after %d", a.Batch, next)
			}
			next = a.Batch.End
			owners = append(owners, a.Member)
			if a.Vote < 1 || a.Vote > FullVote {
				t.Fatalf("member %d has a vote of %d", a.Member, a.Vote)
			}
		}
		if next != 100+uint64(batchSize) {
			t.Fatalf("batches end at %d", next)
		}
		slices.Sort(owners)
		if got := Owners(seed, len(levels), percent, batchSize, levels); !slices.Equal(got, owners) {
			t.Fatalf("owners %v, of the batches %v", got, owners)
		}
		if got := BatchCount(seed, len(levels), percent, batchSize, levels); got != len(owners) {
			t.Fatalf("%d batches, want %d", got, len(owners))
		}
		equal := slices.Repeat([]uint8{levels[0]}, len(levels))
		if got, want := Batches(seed, len(levels), percent, 7, batchSize, equal), Batches(seed, len(levels), percent, 7, batchSize, nil); !slices.Equal(got, want) {
			t.Fatalf("equal levels: %v, want %v", got, want)
		}
	})
}

// TestFullBatches checks that no batch is larger than its trainer's full batch, and
// that a member with a higher level has at least the full batch of a member with a lower level.
func TestFullBatches(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		levels := drawLevels(t)
		percent := rapid.IntRange(0, 100).Draw(t, "percent")
		batchSize := rapid.Uint32Range(1, 5000).Draw(t, "batch size")
		batches := Batches(rapid.Uint64().Draw(t, "seed"), len(levels), percent, 100, batchSize, levels)
		full := FullBatches(batches, levels)
		if len(full) != len(levels) {
			t.Fatalf("%d full batches of %d members", len(full), len(levels))
		}
		largest := uint64(0)
		for _, b := range batches {
			size := b.Batch.Len() * FullBatchUnit
			if largest = max(largest, size); size > full[b.Member] {
				t.Fatalf("member %d has a batch of %d, larger than its full batch of %d", b.Member, size, full[b.Member])
			}
		}
		for i := range levels {
			for k := range levels {
				if levels[i] <= levels[k] && full[i] > full[k] {
					t.Fatalf("level %d has a full batch of %d, and level %d one of %d", levels[i], full[i], levels[k], full[k])
				}
			}
			if areEqual(levels) && full[i] != largest {
				t.Fatalf("a full batch is %d, but the largest batch is %d", full[i], largest)
			}
		}
	})
	if got := FullBatches(nil, []uint8{3, 4}); !slices.Equal(got, []uint64{0, 0}) {
		t.Errorf("full batches of a round without batches: %v", got)
	}
}
