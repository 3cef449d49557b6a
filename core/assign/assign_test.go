package assign

import (
	"slices"
	"testing"

	"pgregory.net/rapid"
)

// The reference numbers are positions of committees in the original Psyche network, computed from
// its specification.
func TestPositionReference(t *testing.T) {
	tests := []struct {
		seed uint64
		salt string
		want []uint32
	}{
		{0, saltCommittee, []uint32{3, 0, 1, 2}},
		{0, saltWitness, []uint32{1, 2, 0, 3}},
		{42, saltCommittee, []uint32{2, 6, 3, 7, 0, 1, 5, 4}},
		{42, saltWitness, []uint32{4, 0, 7, 3, 6, 5, 2, 1}},
		{123456789, saltCommittee, []uint32{5, 8, 4, 7, 6, 0, 9, 1, 3, 2}},
		{123456789, saltWitness, []uint32{9, 8, 6, 3, 5, 0, 2, 1, 4, 7}},
	}
	for _, test := range tests {
		total := uint32(len(test.want))
		var got []uint32
		for i := range total {
			got = append(got, Position(i, total, test.seed, test.salt))
		}
		if !slices.Equal(got, test.want) {
			t.Errorf("seed %d, %s: got %v, want %v", test.seed, test.salt, got, test.want)
		}
		if all := allPositions(total, test.seed, test.salt); !slices.Equal(all, test.want) {
			t.Errorf("seed %d, %s: all at once got %v, want %v", test.seed, test.salt, all, test.want)
		}
	}
}

func TestPositionIsAPermutation(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		total := rapid.Uint32Range(1, 700).Draw(t, "total")
		seed := rapid.Uint64().Draw(t, "seed")
		all := allPositions(total, seed, saltBatch)
		for range 5 {
			index := rapid.Uint32Range(0, total-1).Draw(t, "index")
			if got := Position(index, total, seed, saltBatch); got != all[index] {
				t.Fatalf("position of %d: %d from Position, %d in the whole permutation", index, got, all[index])
			}
		}
		slices.Sort(all)
		for i, position := range all {
			if position != uint32(i) {
				t.Fatalf("no element at position %d", i)
			}
		}
	})
}

func TestPositionOfNoElement(t *testing.T) {
	if got := Position(0, 0, 1, saltWitness); got != 0 {
		t.Errorf("position in an empty list: %d, want 0", got)
	}
	if got := Position(5, 5, 1, saltWitness); got != 5 {
		t.Errorf("position of an index past the end: %d, want the index 5", got)
	}
}

// TestPositionLargest checks indices at the end of the range of uint32.
func TestPositionLargest(t *testing.T) {
	const total = 1<<32 - 1
	if got := Position(total-1, total, 3, saltWitness); got >= total {
		t.Errorf("position %d outside of %d", got, uint32(total))
	}
}

func TestQuorum(t *testing.T) {
	want := []int{0, 1, 2, 2, 3, 4, 4, 5, 6, 6, 7, 8, 8, 9, 10, 10, 11, 12, 12, 13, 14, 14, 15, 16, 16, 17, 18, 18, 19, 20, 20, 21, 22}
	for n, quorum := range want {
		if got := Quorum(n); got != quorum {
			t.Errorf("Quorum(%d) = %d, want %d", n, got, quorum)
		}
	}
	if got := Quorum(-3); got != 0 {
		t.Errorf("Quorum(-3) = %d", got)
	}
}

func TestWitnesses(t *testing.T) {
	tests := []struct {
		name                  string
		members, nodes, count int
	}{
		{"everybody", 5, 0, 5},
		{"everybody, but at most 32", 40, 0, 32},
		{"as many as asked for", 40, 7, 7},
		{"more than there are", 3, 7, 3},
		{"nobody", 0, 4, 0},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			got := Witnesses(9, test.members, test.nodes)
			if len(got) != test.count {
				t.Fatalf("elected %d, want %d", len(got), test.count)
			}
			for position, member := range got {
				if p := Position(uint32(member), uint32(test.members), 9, saltWitness); int(p) != position {
					t.Errorf("member %d is at %d in the list, at %d in the shuffle", member, position, p)
				}
			}
		})
	}
}

func TestTrainers(t *testing.T) {
	tests := []struct{ members, percent, trainers int }{
		{4, 0, 4}, {4, 50, 2}, {3, 50, 2}, {4, 100, 1}, {1, 100, 1}, {10, 99, 1}, {4, 300, 1}, {4, -1, 4}, {0, 0, 0},
	}
	for _, test := range tests {
		got := Trainers(1, test.members, test.percent)
		if len(got) != test.trainers {
			t.Errorf("%d members, %d %%: %d trainers, want %d", test.members, test.percent, len(got), test.trainers)
		}
		if !slices.IsSorted(got) {
			t.Errorf("%d members, %d %%: %v not ascending", test.members, test.percent, got)
		}
	}
}

func TestBatchesArePartition(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		seed := rapid.Uint64().Draw(t, "seed")
		members := rapid.IntRange(1, 256).Draw(t, "members")
		percent := rapid.IntRange(0, 100).Draw(t, "percent")
		dataIndex := rapid.Uint64Range(0, 1<<60).Draw(t, "data index")
		batchSize := rapid.Uint32Range(1, 5000).Draw(t, "batch size")
		trainers := Trainers(seed, members, percent)
		assignments := Batches(seed, members, percent, dataIndex, batchSize, nil)
		owners := make([]int, len(assignments))
		for i, a := range assignments {
			owners[i] = a.Member
		}
		slices.Sort(owners)
		if got := Owners(seed, members, percent, batchSize, nil); !slices.Equal(got, owners) {
			t.Fatalf("owners %v, of the batches %v", got, owners)
		}
		if want := min(len(trainers), int(batchSize)); len(assignments) != want {
			t.Fatalf("%d batches, want %d", len(assignments), want)
		}
		next, base := dataIndex, uint64(batchSize)/uint64(len(trainers))
		seen := map[int]bool{}
		for _, a := range assignments {
			if a.Batch.Start != next || a.Batch.End <= a.Batch.Start {
				t.Fatalf("batch %v after %d", a.Batch, next)
			}
			if n := a.Batch.Len(); n != base && n != base+1 {
				t.Fatalf("batch of %d, want %d or one more", n, base)
			}
			if seen[a.Member] || !slices.Contains(trainers, a.Member) {
				t.Fatalf("member %d has a second batch or does not train", a.Member)
			}
			seen[a.Member] = true
			next = a.Batch.End
		}
		if next != dataIndex+uint64(batchSize) {
			t.Fatalf("batches end at %d, want %d", next, dataIndex+uint64(batchSize))
		}
	})
}

func TestBatchesOfNothing(t *testing.T) {
	if got := Batches(1, 0, 0, 0, 8, nil); got != nil {
		t.Errorf("no members: %v", got)
	}
	if got := Batches(1, 3, 0, 0, 0, nil); got != nil {
		t.Errorf("no sequences: %v", got)
	}
}

func TestBatchIDString(t *testing.T) {
	if got := (BatchID{Start: 8, End: 12}).String(); got != "[8,12)" {
		t.Error(got)
	}
}

func BenchmarkBatches(b *testing.B) {
	for b.Loop() {
		Batches(7, 256, 0, 1000, 4096, nil)
	}
}

// allPositions returns the position of every index below total, derived from inOrder.
func allPositions(total uint32, seed uint64, salt string) []uint32 {
	all := make([]uint32, total)
	for position, index := range inOrder(total, seed, salt) {
		all[index] = uint32(position)
	}
	return all
}

func TestCountsWithoutShuffle(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		seed := rapid.Uint64().Draw(t, "seed")
		members := rapid.IntRange(0, 70).Draw(t, "members")
		nodes := rapid.IntRange(0, 40).Draw(t, "witness nodes")
		percent := rapid.IntRange(-1, 101).Draw(t, "percent")
		size := uint32(rapid.IntRange(0, 100).Draw(t, "batch size"))
		if got, want := BatchCount(seed, members, percent, size, nil), len(Batches(seed, members, percent, 5, size, nil)); got != want {
			t.Fatalf("%d batches, want %d", got, want)
		}
		elected := Witnesses(seed, members, nodes)
		for member := -1; member <= members; member++ {
			if got := IsWitness(seed, members, nodes, member); got != slices.Contains(elected, member) {
				t.Fatalf("member %d: %v", member, got)
			}
		}
	})
}
