package coordinator

import "testing"

// TestHostAndItsKeysDoNotReplaceTheModel checks a host that withdraws all members except two that
// it controls, which report a different model. Fewer than a third of the first members of an epoch
// cannot record a model, whichever members were withdrawn.
func TestHostAndItsKeysDoNotReplaceTheModel(t *testing.T) {
	const honest, own = 20, 2
	config := testConfig()
	config.InitMinClients, config.MinClients, config.RoundsPerEpoch = honest+own, 2, 9
	var good, bad []string
	for n := range honest {
		good = append(good, string(rune('a'+n)))
	}
	for n := range own {
		bad = append(bad, string(rune('A'+n)))
	}
	r := newRun(t, config, append(good, bad...)...)
	before := r.Model.Checkpoint
	for _, name := range good {
		r.mustID(host, Withdraw{Client: clientID(name)})
	}
	r.until(Cooldown)
	for _, name := range bad {
		r.must(name, ReportCheckpoint{Step: r.Progress.Step, Digest: [32]byte{6, 6, 6}})
	}
	r.until(WaitingForMembers)
	if r.Model.Checkpoint != before {
		t.Errorf("two of %d members recorded %+v", honest+own, r.Model.Checkpoint)
	}
	if err := r.Check(); err != nil {
		t.Error(err)
	}
}
