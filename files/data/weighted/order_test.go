package weighted

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"os"
	"path/filepath"
	"strconv"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/psyche-go/psyche/files/data/shuffle"
)

// shuffled is a source that only has an order.
type shuffled struct {
	len   uint64
	order *shuffle.Permutation // nil: unchanged order
}

func (s shuffled) Len() uint64                                     { return s.len }
func (shuffled) Close() error                                      { return nil }
func (shuffled) Read(context.Context, []uint64) ([][]int32, error) { return nil, nil }

// TestOrderOfAnotherProgram compares with a program that was written from docs/data.md
// (testdata/order.py).
func TestOrderOfAnotherProgram(t *testing.T) {
	raw, err := os.ReadFile(filepath.Join("testdata", "order.json"))
	if err != nil {
		t.Fatal(err)
	}
	var cases []struct {
		Weights []string
		Lengths []uint64
		Seeds   []string
		Seed    string
		First   uint64
		Order   [][2]uint64
	}
	if err := json.Unmarshal(raw, &cases); err != nil {
		t.Fatal(err)
	}
	seedOf := func(text string) *[32]byte {
		number, err := strconv.ParseUint(text, 10, 64)
		if err != nil {
			t.Fatal(err)
		}
		if number == 0 {
			return nil
		}
		var seed [32]byte
		binary.LittleEndian.PutUint64(seed[:], number)
		return &seed
	}
	for number, c := range cases {
		var sources []Source
		for i, length := range c.Lengths {
			s := shuffled{len: length}
			if seed := seedOf(c.Seeds[i]); seed != nil {
				s.order = shuffle.New(*seed, length)
			}
			sources = append(sources, s)
		}
		shares, err := Shares(c.Weights)
		if err != nil {
			t.Fatal(err)
		}
		m, err := New(sources, shares, seedOf(c.Seed))
		if err != nil {
			t.Fatal(err)
		}
		var got [][2]uint64
		for i := range c.Order {
			source, at := m.At(c.First + uint64(i))
			s := sources[source].(shuffled)
			if s.order != nil {
				at = s.order.At(at)
			}
			got = append(got, [2]uint64{uint64(source), at % s.len})
		}
		if diff := cmp.Diff(c.Order, got); diff != "" {
			t.Errorf("case %d (-want +got):\n%s", number, diff)
		}
	}
}
