package programtest

import (
	"errors"
	"flag"
	"maps"
	"slices"
	"testing"

	"github.com/psyche-go/psyche/coordinator"
)

var operations = flag.Int("ops", 6_000, "how many random operations TestRandom compares")

// TestRandom lets a few clients, members or not, send anything at any time to many short runs.
func TestRandom(t *testing.T) {
	r := begin(t, native(t))
	for seed := uint64(1); r.operations < *operations; seed++ {
		if err := random(r, seed); err != nil {
			t.Fatalf("seed %d: %v", seed, err)
		}
	}
	t.Logf("%d operations, all accounts equal", r.operations)
	for _, what := range slices.Sorted(maps.Keys(r.seen)) {
		t.Logf("%8d %s", r.seen[what], what)
	}
}

// random compares one run.
func random(r *pair, seed uint64) error {
	g := newGenerator(seed, 5)
	g.ids = append(g.ids, newGenerator(seed, 15).ids[5:5+g.IntN(10)]...)
	genesis := g.genesis()
	if code, err := r.genesis(genesis); code != 0 || err != nil {
		return err
	}
	if genesis.Permissioned {
		for _, id := range g.ids[:len(g.ids)/2+1] {
			g.nonce++
			if _, err := r.apply(r.s.Authority.Join, g.nonce, encode(coordinator.Authorize{Grantee: id, Allowed: true})); err != nil {
				return err
			}
		}
	}
	return g.walk(r, 60+g.IntN(240))
}

// begin returns a pair whose process ends with the test.
func begin(t *testing.T, program string) *pair {
	t.Helper()
	p, err := start(program)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := p.stop(); err != nil {
			t.Error(err)
		}
	})
	return newPair(p)
}

// found reports whether an error says that Go and C differ.
func found(err error) bool {
	var d *differs
	return errors.As(err, &d)
}
