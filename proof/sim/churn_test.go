package sim

import (
	"flag"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/psyche-go/psyche/core/coordinator"
	"github.com/psyche-go/psyche/proof/sim/check"
	"github.com/psyche-go/psyche/proof/sim/random"
	"github.com/psyche-go/psyche/proof/sim/scenario"
)

var update = flag.Bool("update", false, "write the table of README.md")

// churn is a run of many honest members. In every epoch, some of them are killed and return.
type churn struct {
	world   *world
	random  *random.Source
	percent int
	atOnce  bool // all at once; otherwise each at a separate time
	span    int64

	epochs, lost int
	lasted       int64 // all runs together
	over         bool  // the journal is being replayed from now on
}

const (
	churnClients = 24
	churnEpochs  = 8
	churnRounds  = 6           // of an epoch
	churnSpan    = 25 * second // approximate duration of the rounds and the cooldown
)

// measure simulates the run and counts epochs that recorded no checkpoint.
func (c *churn) measure(t *testing.T, seed uint64) {
	t.Helper()
	o := Options{Seed: seed, Clients: churnClients, Rounds: churnEpochs * churnRounds, Faults: scenario.NoFaults}
	o.rules.tick = c.tick
	w := newWorld(o)
	defer w.workers.Close()
	w.plan.Faults = scenario.Crash // has the effect of kill: no round waits for the killed members
	k := &w.plan.Config
	k.RoundsPerEpoch, k.EpochTime, k.TotalSteps, k.VerificationPercent = churnRounds, 0, churnEpochs*churnRounds, 0
	k.WarmupTime, k.CooldownTime, k.MaxRoundTrainTime, k.RoundWitnessTime, k.WaitingForMembersExtraTime = 20_000, 15_000, 10_000, 1000, 3000
	k.InitMinClients, k.MinClients, k.WitnessNodes, k.ProbationSteps = churnClients/3, churnClients/4, 0, 8
	c.world, c.random, c.over = w, random.New(seed, "churn"), false
	w.begin()
	w.loop()
	c.lasted += w.now
	if v := w.violation; v != nil && v.Assertion != check.Progress { // a member that returned late has no final model
		t.Errorf("seed %d: %v", seed, v)
	}
}

func (c *churn) tick(s *coordinator.State, now uint64, draw [32]byte) bool {
	before, checkpoint := s.RunState, s.Model.Checkpoint
	changed := s.Tick(now, draw)
	switch {
	case c.over:
	case before == coordinator.Warmup && s.RunState == coordinator.RoundTrain && s.Progress.Epoch < churnEpochs-1:
		c.kill()
	case before == coordinator.Cooldown && s.RunState != coordinator.Cooldown:
		c.epochs++
		if s.Model.Checkpoint == checkpoint {
			c.lost++
		}
		c.over = s.RunState == coordinator.Finished
	}
	return changed
}

// kill removes some of the clients between the epoch's first round and its end. They return an
// epoch later.
func (c *churn) kill() {
	w := c.world
	moment := c.random.Between(0, c.span)
	for _, i := range c.random.Pick(churnClients, churnClients*c.percent/100) {
		at := moment
		if !c.atOnce {
			at = c.random.Between(0, c.span)
		}
		w.after(at, func() {
			w.machines[i].crash()
			w.after(c.span, w.machines[i].start)
		})
	}
}

// TestChurn counts the epochs of an honest run that record no checkpoint although members vanish:
// the remaining members are too few for a quorum, or the run has not yet noticed the absent
// members. README.md has the table; -update writes it.
func TestChurn(t *testing.T) {
	if testing.Short() {
		t.Skip("-short: simulates many runs")
	}
	var b strings.Builder
	b.WriteString("| of 24 members, disappear in each epoch | epochs | without a checkpoint |\n|---|---|---|\n")
	for _, atOnce := range []bool{false, true} {
		for _, percent := range []int{0, 10, 30, 50} {
			if atOnce && percent == 0 {
				continue // the same
			}
			c := churn{percent: percent, atOnce: atOnce, span: churnSpan}
			for seed := uint64(1); seed <= 2; seed++ {
				c.measure(t, seed)
			}
			how := fmt.Sprintf("%d %%, one by one", percent)
			switch {
			case percent == 0:
				how = "none"
			case atOnce:
				how = fmt.Sprintf("%d %%, at once", percent)
			}
			t.Logf("%d %%: %.1f s an epoch", percent, float64(c.lasted)/float64(second)/float64(c.epochs))
			fmt.Fprintf(&b, "| %s | %d | %d |\n", how, c.epochs, c.lost)
		}
	}
	compareTable(t, "README.md", "churn", b.String())
}

// compareTable checks that a page has a table between its marks, or writes the table with -update.
func compareTable(t *testing.T, file, mark, table string) {
	t.Helper()
	page, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	begin, end := "<!-- "+mark+" -->\n", "<!-- end of "+mark+" -->\n"
	before, rest, found := strings.Cut(string(page), begin)
	have, after, ended := strings.Cut(rest, end)
	switch {
	case !found || !ended:
		t.Fatalf("%s does not contain the marks of %s", file, mark)
	case *update:
		if err := os.WriteFile(file, []byte(before+begin+table+end+after), 0o644); err != nil {
			t.Fatal(err)
		}
	case have != table:
		t.Errorf("the table in %s differs from the measurement; go test ./proof/sim -run TestChurn -update writes it:\n%s", file, table)
	}
}
