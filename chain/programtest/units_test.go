package programtest

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/psyche-go/psyche/base/golden"
	"github.com/psyche-go/psyche/chain/layout"
	"github.com/psyche-go/psyche/chain/transaction"
	"github.com/psyche-go/psyche/core/bloom"
	"github.com/psyche-go/psyche/core/coordinator"
)

// actionNames are the kinds of actions, in the order of package wire.
var actionNames = [...]string{
	1: "Join", 2: "Ready", 3: "WitnessRound", 4: "HealthCheck", 5: "ReportCheckpoint", 6: "Withdraw", 7: "SetPaused",
	8: "UpdateConfig", 9: "Authorize", 10: "SetDelegates", 11: "Eject", 12: "Close", 13: "ReportUpload",
	14: "Equivocation", 15: "Return", 18: "Accuse", 20: "Vote", 21: "Admit", 22: "Offer",
}

// costs plays a permissioned run of n members through everything that can happen to it. Each member
// is a delegate of a separate grantee. The model definition has 8,192 bytes, the health check 24
// names, and a WRITE 950 bytes. With shares, the run has shares by speed and trains lost sequences again. All members
// offer speeds, and the witnesses of later rounds hold different results.
func costs(t *testing.T, n int, shares bool) units {
	t.Helper()
	d, u := newDeployed(loadProgram(t)), units{}
	d.note = u.note
	c := &crowd{r: newPair(d), now: 100 * second}
	config := crowdConfig
	config.RoundsPerEpoch = 9
	config.SharesBySpeed, config.RetryLost = shares, shares
	if shares {
		config.VerificationPercent = 0
	}
	if n == 2 {
		config.VerificationPercent = 50 // a smaller share would make both trainers
	}
	genesis := coordinator.Genesis{RunID: "costs", Host: clientID(100_000), Config: config, Model: crowdModel, Permissioned: true, Paused: true}
	if code, err := c.r.genesis(genesis); code != 0 || err != nil {
		t.Fatal(code, err)
	}
	c.must(genesis.Host, coordinator.UpdateConfig{Config: config, Model: crowdModel})
	for i := range n {
		c.must(genesis.Host, coordinator.Authorize{Grantee: clientID(1000 + i), Allowed: true})
		c.must(clientID(1000+i), coordinator.SetDelegates{Number: uint32(i + 1), Delegates: []coordinator.ClientID{
			clientID(2000 + i), clientID(3000 + i), clientID(4000 + i), clientID(n - 1 - i),
		}})
	}
	c.must(genesis.Host, coordinator.SetPaused{})
	c.tick(second, coordinator.WaitingForMembers)
	c.lead(n, config)
	if c.err != nil {
		t.Fatal(c.err)
	}
	c.leave(n)
	if c.err != nil {
		t.Fatal(c.err)
	}
	return u
}

// lead plays a run from the joins of its members to the upload of its first checkpoint.
func (c *crowd) lead(n int, config coordinator.Config) {
	for i := range n {
		c.must(clientID(i), coordinator.Join{Commitment: linkAt(1)})
	}
	c.tick(0, coordinator.WaitingForMembers)
	c.tick(3*second, coordinator.Warmup)
	for i := range n {
		c.must(clientID(n-1-i), readyOf(&c.r.s, clientID(n-1-i), linkAt(chainLength)))
	}
	c.tick(second, coordinator.RoundTrain)
	for round := range config.RoundsPerEpoch {
		c.try(round)
		if config.SharesBySpeed {
			c.offer(round)
		}
		r := c.r.s.CurrentRound()
		proof := c.proof(0)
		if round == 3 && n > 2 {
			proof = c.proof(4)
		}
		for i := range n {
			if round == 7 && isHealthy(&c.r.s, clientID(i)) {
				c.must(clientID(i), coordinator.ReportCheckpoint{Step: c.r.s.Progress.Step, Digest: clientID(49_999)})
			}
		}
		for _, member := range r.ElectedWitnesses(c.r.s.Config) {
			if isHealthy(&c.r.s, r.Members[member]) {
				if config.SharesBySpeed && round > 3 {
					proof.Participants = threeQuarters(r, member)
				}
				proof.Reveal = revealOf(&c.r.s, r.Members[member])
				c.must(r.Members[member], proof)
			}
		}
		leaves := c.r.s.Epoch.Clients[len(c.r.s.Epoch.Clients)-1].ID
		if round == 0 && n > 2 {
			c.must(leaves, coordinator.Withdraw{Client: leaves})
		}
		c.tick(50*second, coordinator.RoundWitness)
		if round == config.RoundsPerEpoch-1 {
			break
		}
		c.tick(5*second, coordinator.RoundTrain)
		if round == 0 && n > 2 {
			c.must(leaves, coordinator.Return{Epoch: c.r.s.Progress.Epoch})
		}
		if accusable := c.r.s.Accusable(); len(accusable) > 0 {
			c.must(c.r.s.Epoch.Clients[0].ID, coordinator.HealthCheck{Step: c.r.s.Progress.Step - 1, Clients: accusable[:min(len(accusable), 24)]})
		}
	}
	if n > 2 && recording == nil { // these bytes have no signature
		last := c.r.s.CurrentRound()
		c.must(c.r.s.Epoch.Clients[0].ID, equivocationOf(last.Members[len(last.Members)-1], last.Step, true, true))
	}
	c.tick(5*second, coordinator.Cooldown)
	step := c.r.s.Progress.Step
	for i := range n {
		if isHealthy(&c.r.s, clientID(n-1-i)) {
			c.must(clientID(n-1-i), coordinator.ReportCheckpoint{Step: step, Digest: clientID(50_000)})
		}
	}
	c.tick(second, coordinator.WaitingForMembers)
	c.must(c.r.s.Pending[0].ID, coordinator.ReportUpload{Step: step - 1, Digest: clientID(50_000), Place: coordinator.Location{Kind: coordinator.CheckpointGcs, Repo: "bucket"}})
}

// offer lets all members offer speeds, which differ much.
func (c *crowd) offer(round uint32) {
	for i, client := range c.r.s.Epoch.Clients {
		if client.State == coordinator.Healthy {
			c.must(client.ID, coordinator.Offer{Step: c.r.s.Progress.Step, Level: uint8(60 + (7*int(round)+13*i)%60)})
		}
	}
}

// threeQuarters returns the filter of a witness that holds the results of three quarters of the members.
func threeQuarters(r *coordinator.Round, witness int) (f bloom.Filter) {
	for member, id := range r.Members {
		if (member+witness)%4 != 0 {
			f.Add(r.Seed, id[:])
		}
	}
	return f
}

// try accuses as many members as possible of their first result. One of them is judged in the next
// round, and the juries of the others do not vote.
func (c *crowd) try(round uint32) {
	s := &c.r.s
	switch round {
	case 1:
		n := len(s.Epoch.Clients)
		for i := range min(n, coordinator.MaxTrials) {
			c.must(s.Epoch.Clients[i].ID, coordinator.Accuse{Step: 1, Client: s.Epoch.Clients[n-1-i].ID, Fault: coordinator.FaultResult})
		}
	case 2:
		if len(s.Trials) == 0 { // two members have no jury
			return
		}
		trial := s.Trials[0]
		for _, juror := range jurorsOf(s, trial.Slot) {
			if s.Trial(trial.Accused, trial.Step) != nil {
				c.must(juror, coordinator.Vote{Step: trial.Step, Client: trial.Accused, Guilty: true})
			}
		}
	}
}

// leave ends a run: its members leave, one is ejected, one loses its authorization, and the run is
// closed.
func (c *crowd) leave(n int) {
	s := &c.r.s
	c.tick(4*second, coordinator.WaitingForMembers)
	c.tick(4*second, coordinator.Warmup)
	c.must(s.Authority.Join, coordinator.Authorize{Grantee: s.Authority.Authorizations[n-1].Grantee})
	admit := coordinator.Admit{Grant: clientID(60_000), Client: clientID(60_001)}
	for _, admit.Allowed = range []bool{true, false} {
		c.must(admit.Client, admit)
	}
	last := s.Epoch.Clients[len(s.Epoch.Clients)-1].ID
	c.must(s.Authority.Main, coordinator.Eject{Client: last})
	c.must(s.Epoch.Clients[0].ID, coordinator.Withdraw{Client: s.Epoch.Clients[0].ID})
	c.must(s.Authority.Main, coordinator.SetPaused{Paused: true})
	c.tick(second, coordinator.Paused)
	c.must(s.Authority.Main, coordinator.Close{})
	c.tick(second, coordinator.Finished)
}

// fixedCosts are the costs of instructions that do not depend on the number of members.
func fixedCosts(t *testing.T) units {
	s, u := newScene(t, loadProgram(t)), units{}
	note := func(data []byte, accounts ...string) { u[instructionNames[data[0]]] = s.must(data, accounts...).Units }
	note([]byte{transaction.RunInit}, "empty", "main")
	note(write(0, make([]byte, transaction.MaxRunWrite)), "run", "main")
	long := strings.Repeat("a", 256)
	note(announcement(long[:128], long[:128], long[:128], long[:128], long[:128], long[:128], long[:128], long[:128]), "peer", "member", "run")
	note([]byte{transaction.RunForget}, "peer", "member", "spill")
	note([]byte{transaction.RunFree}, "fresh", "main", "spill")
	room := layout.GrantSize(layout.MaxGrantDelegates)
	s.resize("grant", room)
	note(grantTo(s.account("member").Key), "grant", "main")
	for i := range layout.MaxGrantDelegates / transaction.MaxRunDelegates {
		note(delegate(false, keys(1000+i*transaction.MaxRunDelegates, transaction.MaxRunDelegates)...), "grant", "member")
	}
	return u
}

// TestUnits records the cost of each instruction, in runs of few and of many members.
func TestUnits(t *testing.T) {
	if testing.Short() || *programFile != "" {
		t.Skip("applies to the program in the repository, and is slow with the race detector")
	}
	fixed := fixedCosts(t)
	by := []units{costs(t, 2, false), costs(t, 64, false), costs(t, 256, false)}
	for _, u := range by {
		for name, taken := range fixed {
			u[name] = taken
		}
	}
	golden.Compare(t, "units.md", unitTable(t, by, unitLimit))
}

// TestUnitsOfShares records the cost of each action and tick in runs with shares by speed.
func TestUnitsOfShares(t *testing.T) {
	if testing.Short() || *programFile != "" {
		t.Skip("applies to the program in the repository, and is slow with the race detector")
	}
	by := []units{costs(t, 2, true), costs(t, 64, true), costs(t, 256, true)}
	golden.Compare(t, "units-shares.md", unitTable(t, by, shareUnitLimit))
}

// unitTable returns a table of costs in runs of 2, 64 and 256 members. No cost may exceed the limit.
func unitTable(t *testing.T, by []units, limit uint64) string {
	t.Helper()
	var names []string
	for name, taken := range by[2] {
		names = append(names, name)
		if taken > limit {
			t.Errorf("%s takes %d units, want at most %d", name, taken, limit)
		}
	}
	order := func(name string) string {
		kind := strings.Index("INIT WRITE GENESIS ACT TICK FREE ANNOUNCE FORGET GRANT DELEGATE", strings.Fields(name)[0])
		return fmt.Sprintf("%2d %s", kind, name)
	}
	slices.SortFunc(names, func(a, b string) int { return strings.Compare(order(a), order(b)) })
	var table strings.Builder
	table.WriteString("| compute units, members: | 2 | 64 | 256 |\n|---|---:|---:|---:|\n")
	for _, name := range names {
		fmt.Fprintf(&table, "| %s |", name)
		for _, u := range by {
			if u[name] == 0 {
				table.WriteString(" – |")
				continue
			}
			fmt.Fprintf(&table, " %d |", u[name])
		}
		table.WriteString("\n")
	}
	return table.String()
}
