package eval

import (
	"encoding/json"
	"os"
	"slices"
	"testing"
)

// TestSample compares draws with the draws of Python's random.
func TestSample(t *testing.T) {
	var all struct {
		Random []struct {
			Seed    uint64
			N, K    int
			Samples [][]int
		}
	}
	text, err := os.ReadFile("testdata/vectors.json")
	if err == nil {
		err = json.Unmarshal(text, &all)
	}
	if err != nil || len(all.Random) == 0 {
		t.Fatal(err)
	}
	for _, c := range all.Random {
		m := newMersenne(c.Seed)
		for i, want := range c.Samples {
			if got := m.sample(c.N, c.K); !slices.Equal(got, want) {
				t.Errorf("seed %d, %d of %d, draw %d: %v, want %v", c.Seed, c.K, c.N, i, got, want)
			}
		}
	}
}
