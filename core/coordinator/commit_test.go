package coordinator

import (
	"math"
	"slices"
	"strconv"
	"testing"

	"pgregory.net/rapid"
)

// modelAfter returns the digest of the correct model after a step.
func modelAfter(step uint32) [32]byte { return [32]byte{1, byte(step)} }

// TestFewRecordNoFalseModel lets fewer than a third of an epoch's first members be Byzantine, and
// lets a host withdraw any member. It checks that every intermediate checkpoint and every checkpoint is a
// correct model. The run also keeps a model that all honest members reported while all members were
// present.
func TestFewRecordNoFalseModel(outer *testing.T) {
	rapid.Check(outer, func(t *rapid.T) {
		names := []string{"a", "b", "c", "d", "e", "f", "g"}[:rapid.IntRange(2, 7).Draw(t, "members")]
		byzantine := (len(names) - 1) / 3
		config := testConfig()
		config.RoundsPerEpoch, config.InitMinClients = 5, 2
		r := newRun(outer, config, names...)
		var kept uint32
		for r.RunState != Cooldown {
			together := rapid.Bool().Draw(t, "together") && r.HealthyCount() == len(names)
			for i, name := range names {
				if acts := rapid.IntRange(0, 2).Draw(t, "acts"); i >= byzantine && (acts > 0 || together) {
					r.tell(name, ReportCheckpoint{Step: r.Progress.Step, Digest: modelAfter(r.Progress.Step - 1)})
				} else if i < byzantine && acts > 0 {
					r.tell(name, ReportCheckpoint{Step: r.Progress.Step, Digest: [32]byte{2, rapid.Byte().Draw(t, "false model") % 2}})
				}
			}
			if together {
				kept = r.Progress.Step - 1
			}
			r.endRound(t, names)
			r.checkModels(t)
		}
		for i, name := range names {
			if i < byzantine {
				r.tell(name, ReportCheckpoint{Step: r.Progress.Step, Digest: [32]byte{2}})
			} else if rapid.Bool().Draw(t, "reports") {
				r.tell(name, ReportCheckpoint{Step: r.Progress.Step, Digest: modelAfter(r.Progress.Step - 1)})
			}
		}
		r.until(WaitingForMembers)
		r.checkModels(t)
		if r.Model.Checkpoint.Step < kept {
			t.Fatalf("all honest members reported the model of step %d: %s", kept, r.String())
		}
	})
}

func (r *run) tell(name string, a Action) {
	r.nonce++
	_ = r.Apply(clientID(name), r.nonce, a) // the action may be refused
}

// endRound lets the remaining members witness the round. Some members are withdrawn then or return.
func (r *run) endRound(t *rapid.T, names []string) {
	step := r.Progress.Step
	r.witnessAll()
	for _, name := range names {
		switch rapid.IntRange(0, 9).Draw(t, "moves") {
		case 0:
			r.nonce++
			_ = r.Apply(host, r.nonce, Withdraw{Client: clientID(name)})
		case 1, 2, 3:
			r.tell(name, Return{Epoch: r.Progress.Epoch})
		}
	}
	for r.Progress.Step == step {
		r.now += second
		r.Tick(r.now, r.testDraw(r.now))
	}
}

func (r *run) checkModels(t *rapid.T) {
	if err := r.Check(); err != nil {
		t.Fatal(err)
	}
	c := r.Model.Checkpoint
	known := append(slices.Clone(r.Earlier), r.Epoch.Commit)
	if c.FromPeers() {
		known = append(known, Recorded{Step: c.Step, Digest: c.Digest})
	}
	for _, m := range known {
		if m.Step != 0 && m.Digest != modelAfter(m.Step) {
			t.Fatalf("a false model of step %d: %s", m.Step, r.String())
		}
	}
}

// TestAbandonedEpoch checks an epoch that five of seven members leave. The other two cannot record
// a model, so the epoch ends once the five have been away for the number of stored rounds. It
// continues if one of the five returns before.
func TestAbandonedEpoch(t *testing.T) {
	for name, c := range map[string]struct {
		leave  int
		back   uint32 // round after the departures in which one member returns; 0 if none returns
		rounds uint32 // number of rounds after the departures, of the 21 rounds left in the epoch
	}{
		"five of seven":                      {5, 0, StoredRounds},
		"one returns":                        {5, 2, 21},
		"one returns in the last moment":     {5, StoredRounds, 21},
		"four of seven, three may record it": {4, 0, 21},
	} {
		t.Run(name, func(t *testing.T) {
			config := testConfig()
			config.RoundsPerEpoch, config.InitMinClients, config.MinClients, config.TotalSteps = 26, 7, 1, 100
			r := newRun(t, config, "a", "b", "c", "d", "e", "f", "g")
			r.join("a", "b", "c", "d", "e", "f", "g")
			r.startTraining()
			for r.Progress.Step < 6 {
				r.step()
			}
			r.witnessAll()
			for _, leaver := range []string{"g", "f", "e", "d", "c"}[:c.leave] {
				r.must(leaver, Withdraw{Client: clientID(leaver)})
			}
			r.pass()
			last := r.Progress.Step
			for r.RunState != Cooldown {
				if c.back != 0 && r.Progress.Step == last+c.back-1 {
					r.must("g", Return{Epoch: r.Progress.Epoch})
				}
				r.step()
			}
			if held := r.Progress.Step - last; held != c.rounds {
				t.Errorf("%d rounds were held after the departures, want %d", held, c.rounds)
			}
		})
	}
}

// membersAway returns a run that has recorded the model of step 2 and whose three members have
// left.
func membersAway(t *testing.T) *run {
	config := testConfig()
	config.ProbationSteps, config.InitMinClients, config.MinClients = 4, 1, 1
	r := newRun(t, config, "a", "b", "c")
	r.finishEpoch("x")
	for _, name := range []string{"a", "b", "c"} {
		r.must(name, Withdraw{Client: clientID(name)})
	}
	return r
}

// TestUnknownClientsDoNotShortenTheWait checks a run whose model holders are restarting. A member
// that lost the model comes back, and some unknown clients claim to hold the model. One unknown
// client gets a seat by draw. Whichever client that is, the run waits for the holders and continues
// from their model.
func TestUnknownClientsDoNotShortenTheWait(t *testing.T) {
	for _, byzantine := range []int{0, 1, 2, 8} {
		r := membersAway(t)
		r.join("a")
		for i := range 8 {
			stranger := Join{Epoch: r.Progress.Epoch}
			if i < byzantine {
				stranger.Holds = clientID("x")
			}
			r.must("stranger"+strconv.Itoa(i), stranger)
		}
		for range r.Config.WarmupTime/second - 1 {
			r.now += second
			r.Tick(r.now, r.testDraw(r.now))
		}
		if r.RunState != WaitingForMembers {
			t.Errorf("%d of 8 unknown clients claim the model, and the run does not wait for holders:\n%s", byzantine, r.String())
			continue
		}
		r.must("b", Join{Epoch: r.Progress.Epoch, Holds: clientID("x")})
		r.startTraining()
		if c := r.Model.Checkpoint; c.Step != 2 || !c.FromPeers() {
			t.Errorf("%d Byzantine members: the run continues from %s", byzantine, r.String())
		}
	}
}

// TestTheWaitFitsTheLoss checks the time to wait for model holders if a member comes back without
// the run's model, or with an earlier model. The wait grows with the number of steps that would be
// lost.
func TestTheWaitFitsTheLoss(t *testing.T) {
	const hour = 3600 * second
	for name, test := range map[string]struct {
		step      uint32 // step of the run's checkpoint
		roundTime uint64 // max_round_train_time
		change    func(r *run)
		wait      uint64
	}{
		"nothing to lose but two steps": {2, 30 * second, nil, 0},
		"a thousand steps":              {1000, 30 * second, nil, 1000 * 30 * second / 16},
		"a large run":                   {1_000_000, hour, nil, 24 * hour},
		"the longest rounds":            {math.MaxUint32 - 2, 366 * 24 * hour, nil, 24 * hour},
		"a member has an earlier model": {1000, 30 * second, func(r *run) {
			r.Earlier = []Recorded{{Step: 900, Digest: clientID("y")}}
			r.must("a", Join{Epoch: r.Progress.Epoch, Holds: clientID("y")})
		}, 100 * 30 * second / 16},
		"a newcomer has an earlier model": {1000, 30 * second, func(r *run) {
			r.Earlier = []Recorded{{Step: 900, Digest: clientID("y")}}
			r.must("stranger0", Join{Epoch: r.Progress.Epoch, Holds: clientID("y")})
		}, 1000 * 30 * second / 16},
		"an earlier model was uploaded": {1000, 30 * second, func(r *run) {
			r.Uploads = []Upload{{Reporter: clientID("b"), Step: 800, Digest: clientID("y")}}
		}, 200 * 30 * second / 16},
		"the upload was tried in vain": {1000, 30 * second, func(r *run) {
			r.Uploads = []Upload{{Reporter: clientID("b"), Step: 800, Digest: clientID("y"), Tries: MaxUploadTries}}
		}, 1000 * 30 * second / 16},
		"the model lacks most of them": {1000, 30 * second, func(r *run) {
			r.RollbackGaps = []RollbackGap{{First: 1, Last: 500}, {First: 601, Last: 900}}
		}, 200 * 30 * second / 16},
		"the upload lacks some too, and a rollback gap came after the model": {1000, 30 * second, func(r *run) {
			r.Progress.Step = 1011
			r.RollbackGaps = []RollbackGap{{First: 1, Last: 820}, {First: 991, Last: 1010}}
			r.Uploads = []Upload{{Reporter: clientID("b"), Step: 800, Digest: clientID("y")}}
		}, 170 * 30 * second / 16},
		"the model was named at step 701": {1000, 30 * second, func(r *run) { r.OriginStep = 701 }, 300 * 30 * second / 16},
	} {
		t.Run(name, func(t *testing.T) {
			r := membersAway(t)
			r.Config.MaxRoundTrainTime = test.roundTime
			r.Model.Checkpoint.Step, r.Progress.Step = test.step, test.step+1
			r.join("a")
			for i := range 8 {
				r.must("stranger"+strconv.Itoa(i), Join{Epoch: r.Progress.Epoch})
			}
			if test.change != nil {
				test.change(r)
			}
			r.Tick(r.now, r.testDraw(r.now))
			if want := max(test.wait, r.Config.WarmupTime); r.PhaseTime() != want {
				t.Errorf("the run waits for %d ms, want %d", r.PhaseTime(), want)
			}
		})
	}
}

// TestNoEpochBeginsWithUnknownClientsOnly lets unknown clients wait for an hour while all members
// are away. It checks that no epoch begins until a client with the model or an old member comes
// back, or until a copy of the model was uploaded.
func TestNoEpochBeginsWithUnknownClientsOnly(t *testing.T) {
	for name, test := range map[string]struct {
		ends func(r *run)
		step uint32 // step of the checkpoint from which the run continues; 0 for its origin
	}{
		"a holder comes back":    {func(r *run) { r.must("b", Join{Epoch: r.Progress.Epoch, Holds: clientID("x")}) }, 2},
		"its key is another one": {func(r *run) { r.must("new", Join{Epoch: r.Progress.Epoch, Holds: clientID("x")}) }, 2},
		"a member without it":    {func(r *run) { r.join("b") }, 0},
		"its copy was uploaded": {func(r *run) {
			r.Uploads = []Upload{{Reporter: clientID("b"), Step: 2, Digest: clientID("x"), Place: Location{Kind: CheckpointGcs, Repo: "bucket"}}}
		}, 2},
	} {
		t.Run(name, func(t *testing.T) {
			r := membersAway(t)
			for i := range 8 {
				r.must("stranger"+strconv.Itoa(i), Join{Epoch: r.Progress.Epoch})
			}
			for range 3600 {
				r.now += second
				r.Tick(r.now, r.testDraw(r.now))
			}
			if r.RunState != WaitingForMembers || !r.WaitsForMember() || r.PhaseTime() != 0 {
				t.Fatalf("unknown clients began an epoch:\n%s", r.String())
			}
			test.ends(r)
			r.until(Warmup)
			if c := r.Model.Checkpoint; c.FromPeers() != (test.step > 0) || c.FromPeers() && c.Step != test.step {
				t.Errorf("the run continues from %s", r.String())
			}
		})
	}
}
