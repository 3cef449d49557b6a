package bloom

import (
	"crypto/sha256"
	"encoding/binary"
	"testing"

	"pgregory.net/rapid"
)

const maxEntries = 256

// hash returns the FNV-1a hash of an item, with key as the initial value.
func hash(key uint64, item []byte) uint64 {
	for _, b := range item {
		key = fnv1a(key, b)
	}
	return key
}

// TestHashReference compares the hash function with two numbers of the original Psyche network,
// whose filters have 1024 bits.
func TestHashReference(t *testing.T) {
	item := sha256.Sum256(nil)
	for key, want := range map[uint64]uint64{1: 822, 0xcbf29ce484222325: 450} {
		if got := hash(key, item[:]) % 1024; got != want {
			t.Errorf("key %#x: bit %d, want %d", key, got, want)
		}
	}
	if got := hash(0xcbf29ce484222325, []byte("foobar")); got != 0x85944171f73967e8 {
		t.Errorf("FNV-1a of foobar: %#x", got)
	}
}

// TestPositions compares the positions of items, which are computed with several hashes at once,
// with positions from single hashes.
func TestPositions(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		keys := NewKeys(rapid.Uint64().Draw(t, "seed"))
		item := rapid.SliceOfN(rapid.Byte(), 0, 40).Draw(t, "item")
		for i, got := range keys.Positions(item) {
			if want := hash(keys[i], item) % Bits; uint64(got) != want {
				t.Fatalf("bit %d of %x is %d, want %d", i, item, got, want)
			}
		}
	})
}

func BenchmarkPositions(b *testing.B) {
	keys := NewKeys(1)
	item := sha256.Sum256(nil)
	b.ReportAllocs()
	for b.Loop() {
		keys.Positions(item[:])
	}
}

func TestNoFalseNegatives(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		seed := rapid.Uint64().Draw(t, "seed")
		items := rapid.SliceOfN(rapid.SliceOfN(rapid.Byte(), 32, 32), 0, maxEntries).Draw(t, "items")
		var f Filter
		for _, item := range items {
			f.Add(seed, item)
		}
		for _, item := range items {
			if !f.Contains(seed, item) {
				t.Fatalf("%x was added but is not found", item)
			}
		}
		if n := f.OnesCount(); n > Hashes*len(items) {
			t.Fatalf("%d bits of %d items", n, len(items))
		}
	})
}

func TestEmptyFilterHoldsNothing(t *testing.T) {
	var f Filter
	if f.Contains(0, make([]byte, 32)) || f.OnesCount() != 0 {
		t.Error("the zero filter is not empty")
	}
}

// TestFalsePositives measures the false-positive rate of full filters: 0.82 % by (1 − e^(−kn/m))^k.
func TestFalsePositives(t *testing.T) {
	item := func(i uint64) []byte {
		sum := sha256.Sum256(binary.LittleEndian.AppendUint64(nil, i))
		return sum[:]
	}
	const filters, probes = 20, 5000
	found, next := 0, uint64(0)
	for seed := range uint64(filters) {
		var f Filter
		keys := NewKeys(seed)
		for range maxEntries {
			f.AddPositions(keys.Positions(item(next)))
			next++
		}
		for range probes {
			if f.ContainsPositions(keys.Positions(item(next))) {
				found++
			}
			next++
		}
	}
	rate := float64(found) / (filters * probes)
	t.Logf("false-positive rate with %d entries: %.4f", maxEntries, rate)
	if rate > 0.01 {
		t.Errorf("false-positive rate %.4f, want at most 0.01", rate)
	}
}

func TestSeedsAreIndependent(t *testing.T) {
	var f Filter
	item := sha256.Sum256([]byte("item"))
	f.Add(1, item[:])
	if f.Contains(2, item[:]) {
		t.Error("found under a different seed")
	}
}
