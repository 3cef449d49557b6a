package sim

import (
	"os"
	"strconv"
	"testing"
	"time"
)

func TestQuick(t *testing.T) {
	env := func(k string, d int) int {
		if v, err := strconv.Atoi(os.Getenv(k)); err == nil {
			return v
		}
		return d
	}
	f, err := ParseFaults(os.Getenv("F"))
	if err != nil {
		t.Fatal(err)
	}
	trace := os.Getenv("TR") != ""
	bad := 0
	for seed := uint64(env("A", 1)); seed <= uint64(env("B", 5)); seed++ {
		b := time.Now()
		r := Run(Options{Seed: seed, Clients: env("N", 8), Rounds: env("R", 6), Faults: f, Trace: trace})
		if r.Violation != nil {
			for _, l := range r.Trace {
				t.Log(l)
			}
			t.Errorf("seed %d: %v [%v]", seed, r.Violation, r.Faults)
			if bad++; bad > 10 {
				return
			}
			continue
		}
		t.Logf("seed %d: %d steps %v events %d %v", seed, r.Steps, r.Virtual, r.Events, time.Since(b))
	}
}
