package programtest

import (
	"errors"
	"flag"
	"fmt"
	"maps"
	"slices"
	"testing"
)

const shortRun = 7000

var (
	operations = flag.Int("ops", shortRun, "how many random operations are compared, and as many from filled states")
	firstSeed  = flag.Uint64("seed", 1, "from which seed on operations are drawn")
)

// suite drives a pair and returns the first difference.
type suite struct {
	name string
	run  func(r *pair) error
}

// suites are the comparisons of Go and C.
func suites(operations int) []suite {
	return []suite{
		{"ends of time", endsOfTime},
		{"ejected and barred", ejectedAndBarred},
		{"grant ended", grantEnded},
		{"admitted again", admittedAgain},
		{"reported and left", reportedAndLeft},
		{"intermediate checkpoint", intermediateCheckpoints},
		{"holds the first", holdsTheFirst},
		{"few are left", fewAreLeft},
		{"abandoned", abandoned},
		{"ends at an intermediate checkpoint", endsAtAnIntermediateCheckpoint},
		{"held by a member", heldByAMember},
		{"barred at the end", barredAtTheEnd},
		{"probation abolished", probationAbolished},
		{"crowded out", crowdedOut},
		{"outlived trial", outlivedTrial},
		{"endless complaints", endlessComplaints},
		{"long trial", longTrial},
		{"returned often", returnedOften},
		{"terms of an epoch", termsOfAnEpoch},
		{"accused without a quorum", accusedWithoutQuorum},
		{"five uploads", fiveUploads},
		{"back to an upload", backToUpload},
		{"awaited model", awaitedModel},
		{"accused too late", accusedTooLate},
		{"one of two is late", oneOfTwoIsLate},
		{"slow witnesses", slowWitnesses},
		{"caps of findings", capsOfFindings},
		{"false reveals", falseReveals},
		{"trials", seeds(operations, trials)},
		{"court", seeds(operations, court)},
		{"lateness", seeds(operations/2, lateness)},
		{"offers", seeds(operations, offers)},
		{"limits of levels", levelLimits},
		{"lost stretches", lostStretches},
		{"epoch needs newcomers", epochNeedsNewcomers},
		{"seats", seeds(operations, seats)},
		{"many checkpoints", manyCheckpoints},
		{"full uploads", seeds(operations/4, fullUploads)},
		{"random", seeds(operations, random)},
		{"filled", seeds(operations, filled)},
		{"configurations", configurations},
		{"bytes", alteredBytes},
		{"batch sizes", batchSizes},
		{"geneses", geneses},
		{"permissionless crowd", permissionlessCrowd},
		{"permissioned crowd", permissionedCrowd},
	}
}

// seeds runs one seed after the other until a number of operations are done.
func seeds(operations int, run func(*pair, uint64) error) func(*pair) error {
	return func(r *pair) error {
		begun := r.operations
		for seed := *firstSeed; r.operations < begun+operations; seed++ {
			if err := run(r, seed); err != nil {
				return fmt.Errorf("seed %d: %w", seed, err)
			}
		}
		return nil
	}
}

// TestProgram compares the results and states of Go and C.
func TestProgram(t *testing.T) {
	for _, s := range suites(*operations) {
		t.Run(s.name, func(t *testing.T) {
			p, err := start(native(t))
			if err != nil {
				t.Fatal(err)
			}
			r := newPair(p)
			if err := errors.Join(s.run(r), p.stop()); err != nil {
				t.Fatal(err)
			}
			t.Logf("%d operations, all accounts equal", r.operations)
			for _, subject := range slices.Sorted(maps.Keys(r.seen)) {
				t.Logf("%8d %s", r.seen[subject], subject)
			}
		})
	}
}
