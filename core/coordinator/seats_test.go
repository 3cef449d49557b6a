package coordinator

import (
	"errors"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// probationRun returns a run of members whose probation is over.
func probationRun(t testing.TB, members int) *run {
	t.Helper()
	config := testConfig()
	config.ProbationSteps, config.TotalSteps, config.GlobalBatchSizeStart, config.GlobalBatchSizeEnd = 2, 1000, 300, 300
	names := make([]string, members)
	for i := range names {
		names[i] = "m" + strconv.Itoa(i)
	}
	return newRun(t, config, names...)
}

func (r *run) joinMany(prefix string, count int) {
	r.t.Helper()
	for i := range count {
		r.join(prefix + strconv.Itoa(i))
	}
}

// countNamed returns the number of members and of pending clients whose names begin with prefix.
func (r *run) countNamed(prefix string) (members, pending int) {
	for _, l := range []struct {
		clients []Client
		count   *int
	}{{r.Epoch.Clients, &members}, {r.Pending, &pending}} {
		for i := range l.clients {
			if strings.HasPrefix(nameOf(l.clients[i].ID), prefix) {
				*l.count++
			}
		}
	}
	return members, pending
}

// TestFloodGetsFewSeats checks a process that joins with as many keys as can wait. Honest newcomers
// get seats, members keep their seats, and in each epoch fewer than a third of the members are on
// probation.
func TestFloodGetsFewSeats(t *testing.T) {
	r := probationRun(t, 12)
	r.joinMany("flood", MaxClients)
	if members, pending := r.countNamed("flood"); members != 0 || pending != MaxClients {
		t.Fatalf("%d of the flood are members and %d pending", members, pending)
	}
	r.joinMany("honest", 20) // the list is already full
	if _, pending := r.countNamed("honest"); pending < 18 {
		t.Errorf("%d of 20 honest newcomers wait", pending)
	}
	for epoch := range 6 {
		r.finishEpoch("x" + strconv.Itoa(epoch))
		r.startTraining()
		young := 0
		for i := range r.Epoch.Clients {
			if r.Epoch.Clients[i].ProbationUntil > r.Progress.Step {
				young++
			}
		}
		if 3*young >= len(r.Epoch.Clients) || young == 0 {
			t.Fatalf("epoch %d: %d of %d members are on probation", epoch, young, len(r.Epoch.Clients))
		}
		if members, _ := r.countNamed("m"); members != 12 {
			t.Fatalf("epoch %d: %d of 12 old members have their seats", epoch, members)
		}
	}
	flood, _ := r.countNamed("flood")
	honest, _ := r.countNamed("honest")
	t.Logf("after 6 epochs: %d of 256 of the flood and %d of 20 honest newcomers are members", flood, honest)
	if honest == 0 {
		t.Error("no honest newcomer became a member")
	}
	if err := r.Check(); err != nil {
		t.Error(err)
	}
}

// TestNewcomersAreDrawn checks many groups of newcomers that wait for few seats. The draw does not
// depend on the order of the joins, and clients that join after the draw is known come last.
func TestNewcomersAreDrawn(t *testing.T) {
	const runs, newcomers, places = 60, 40, 5
	var drawn [newcomers]int
	for i := range runs {
		r := probationRun(t, 12)
		for n := range newcomers {
			r.join("n" + strconv.Itoa(n))
		}
		r.now += uint64(i)*7919 + 1 // the draws of this test are its times
		r.finishEpoch("x")
		r.joinMany("late", 50)
		r.until(Warmup)
		if late, _ := r.countNamed("late"); late != 0 {
			t.Fatalf("%d clients that joined after the last draw have seats", late)
		}
		if members, waiting := r.countNamed("n"); members != places || waiting != newcomers-places {
			t.Fatalf("%d newcomers have seats and %d wait, want %d and %d", members, waiting, places, newcomers-places)
		}
		for n := range newcomers {
			if r.isHealthy(clientID("n" + strconv.Itoa(n))) {
				drawn[n]++
			}
		}
	}
	first, last := 0, 0
	for n := range newcomers / 2 {
		first, last = first+drawn[n], last+drawn[newcomers-1-n]
	}
	// Binomial distribution: 300 draws, half of them expected, standard deviation 8.7.
	if first < 115 || last < 115 {
		t.Errorf("%d of the first arrivals and %d of the last were drawn", first, last)
	}
	if slices.Max(drawn[:]) > 22 { // 7.5 expected, standard deviation 2.6
		t.Errorf("one newcomer was drawn %d times in %d runs: %v", slices.Max(drawn[:]), runs, drawn)
	}
}

// TestReturningMembersGetTheirSeats checks members that leave in several ways while other clients
// fill the list of pending clients.
func TestReturningMembersGetTheirSeats(t *testing.T) {
	r := probationRun(t, 12)
	r.finishEpoch("x")
	r.startTraining()
	r.must("m3", Withdraw{Client: clientID("m3")})
	r.must("host", Withdraw{Client: clientID("m4")})
	r.must("host", Eject{Client: clientID("m5")})
	member, _ := r.Member(clientID("m6"))
	member.State = Dropped // simulates findings of witnesses
	r.joinMany("flood", MaxClients)
	for i := 3; i < 8; i++ { // m7 gives up its seat
		r.nonce++
		err := r.Apply(clientID("m"+strconv.Itoa(i)), r.nonce, Join{Epoch: r.Progress.Epoch})
		if i == 5 && !errors.Is(err, ErrNotAuthorised) || i != 5 && err != nil {
			t.Fatalf("m%d joins: %v", i, err)
		}
	}
	r.joinMany("more", 300)
	for i, until := range map[int]uint32{3: 3, 4: 3, 6: 3, 7: 3} {
		at := indexOf(r.Pending, clientID("m"+strconv.Itoa(i)))
		if at < 0 || r.Pending[at].ProbationUntil != until {
			t.Fatalf("m%d at index %d, want it pending with a probation until step %d:\n%+v", i, at, until, r.Pending[max(at, 0)])
		}
	}
	r.finishEpoch("y")
	r.startTraining()
	if members, _ := r.countNamed("m"); members-countOf(r, "more") != 11 {
		t.Errorf("%d of the old members have seats, want 11", members-countOf(r, "more"))
	}
}

func countOf(r *run, prefix string) int {
	members, _ := r.countNamed(prefix)
	return members
}

// TestCreditOutlivesAFlood checks that a departed member keeps its credit, although more clients
// join and leave than the list of departed clients can contain.
func TestCreditOutlivesAFlood(t *testing.T) {
	r := probationRun(t, 12)
	r.finishEpoch("x")
	r.startTraining()
	r.must("m3", Withdraw{Client: clientID("m3")})
	r.finishEpoch("y")
	r.startTraining() // m3 is now in the list of departed clients
	for i := range MaxClients + 20 {
		name := "x" + strconv.Itoa(i)
		r.join(name)
		r.must(name, Withdraw{Client: clientID(name)})
	}
	r.join("m3")
	if last := r.Pending[len(r.Pending)-1]; last.ProbationUntil != 3 {
		t.Errorf("m3 is on probation until step %d, want 3: it was a member", last.ProbationUntil)
	}
	if err := r.Check(); err != nil {
		t.Error(err)
	}
}

// TestPermissionedRunsEvictNoClient fills the list of a permissioned run with authorized clients. It
// checks that no client replaces a different one, and that all get seats.
func TestPermissionedRunsEvictNoClient(t *testing.T) {
	config := testConfig()
	config.ProbationSteps = 5
	genesis := Genesis{RunID: "walk", Host: host, Config: config, Model: testModel(), Permissioned: true}
	r := newRunOf(t, genesis, "a", "b", "c")
	for i := range MaxClients - 3 {
		r.must("host", Authorize{Grantee: clientID("n" + strconv.Itoa(i)), Allowed: true})
	}
	r.joinMany("n", MaxClients-3)
	delegates := []ClientID{clientID("x0"), clientID("x1"), clientID("x2"), clientID("x3")}
	r.must("n0", SetDelegates{Number: 4, Delegates: delegates})
	r.joinMany("x", 3)
	if err := r.Apply(clientID("x3"), 1<<40, Join{}); !errors.Is(err, ErrFull) {
		t.Errorf("one client more than can wait: %v, want ErrFull", err)
	}
	r.finishEpoch("x")
	r.startTraining()
	if len(r.Epoch.Clients) != MaxClients || len(r.Pending) != 0 {
		t.Errorf("%d members and %d pending clients, want all seats taken and no pending clients", len(r.Epoch.Clients), len(r.Pending))
	}
	if r.CurrentRound().Warming != (MemberSet{}) {
		t.Error("a member is on probation")
	}
}

// TestFullRunHasAWaitingList checks that newcomers can wait for the seats of a full run.
func TestFullRunHasAWaitingList(t *testing.T) {
	r := probationRun(t, MaxClients)
	r.joinMany("n", 300)
	if _, pending := r.countNamed("n"); pending != MaxClients {
		t.Fatalf("%d clients wait", pending)
	}
	r.must("m9", Withdraw{Client: clientID("m9")})
	r.finishEpoch("x")
	if len(r.Pending) != MaxClients {
		t.Fatalf("%d clients wait between epochs", len(r.Pending))
	}
	r.startTraining()
	if members, _ := r.countNamed("n"); members != 1 || len(r.Epoch.Clients) != MaxClients {
		t.Errorf("%d newcomers of %d members, want one in the place of the departed member", members, len(r.Epoch.Clients))
	}
	if err := r.Apply(clientID("late"), 1<<40, Join{Epoch: r.Progress.Epoch}); err != nil {
		t.Errorf("in a round: %v", err)
	}
}

// TestProbationSkipsResults checks that only the results of members past their probation count, or
// the results of all members if all are on probation.
func TestProbationSkipsResults(t *testing.T) {
	skipped := func(r *run) (names []string) {
		for i, id := range r.CurrentRound().Members {
			if r.CurrentRound().Warming.Has(i) {
				names = append(names, nameOf(id))
			}
		}
		return names
	}
	r := probationRun(t, 5)
	if got := skipped(r); got != nil {
		t.Errorf("in a new run %v are skipped", got)
	}
	r.join("new")
	r.finishEpoch("x")
	for _, want := range []int{1, 1, 0} {
		if r.RunState != RoundTrain {
			r.startTraining()
		}
		if got := skipped(r); len(got) != want || want == 1 && got[0] != "new" {
			t.Errorf("step %d: %v are skipped, want %d", r.Progress.Step, got, want)
		}
		if step := r.Progress.Step; step == 3 {
			r.witnessAll()
			for r.Progress.Step == step {
				r.now += second
				r.Tick(r.now, testDraw(r.now))
			}
		} else {
			r.finishEpoch("y" + strconv.Itoa(int(step)))
		}
	}
	// A cold start makes all optimizers young, also the optimizers of members on probation.
	cold := probationRun(t, 5)
	cold.Model.ColdStartWarmupSteps = 2
	cold.finishEpoch("x")
	cold.join("new")
	cold.must("host", SetPaused{Paused: true})
	cold.until(Paused)
	cold.must("host", SetPaused{Paused: false})
	cold.startTraining()
	if got := skipped(cold); !slices.Equal(got, []string{"new"}) {
		t.Errorf("in an epoch that starts cold %v are skipped, want the new client", got)
	}
}

// TestOneTrainerCounts checks a round in which the optimizers of all members past their probation
// are young.
func TestOneTrainerCounts(t *testing.T) {
	r := probationRun(t, 3)
	r.Model.ColdStartWarmupSteps = 2
	r.join("new")
	r.finishEpoch("x")
	r.startTraining()
	for i := range r.Epoch.Clients {
		r.Epoch.Clients[i].OptimizerSince = r.Progress.Step
	}
	r.Epoch.Clients[3].OptimizerSince = 1
	round := r.roundOf(r.Progress.Step)
	if nameOf(round.Members[3]) != "new" || !round.Warming.Has(3) || round.Warming.Has(0) || round.Warming.Has(1) || round.Warming.Has(2) {
		t.Errorf("skipped: %x, want only the new client", round.Warming)
	}
}

// TestPlaces checks the number of newcomers that an epoch admits.
func TestPlaces(t *testing.T) {
	tests := []struct{ regular, young, least, want int }{
		{0, 0, 3, MaxClients}, // the run begins
		{1, 0, 1, 1},
		{2, 0, 1, 1},
		{2, 1, 1, 0},
		{3, 0, 1, 1},
		{5, 0, 1, 2},
		{12, 0, 1, 5},
		{12, 3, 1, 2},
		{12, 9, 1, 0},
		{2, 0, 6, 4}, // as many as the next epoch needs
		{0, 12, 1, 5},
		{200, 0, 1, 99},
	}
	for _, test := range tests {
		var s State
		s.Config = Config{ProbationSteps: 1, InitMinClients: uint16(test.least)}
		if got := s.places(test.regular, test.young); got != test.want {
			t.Errorf("%+v: got %d; want %d", test, got, test.want)
		}
		s.Config.ProbationSteps = 0
		if got := s.places(test.regular, test.young); got != MaxClients-test.regular-test.young {
			t.Errorf("%+v without probation: %d", test, got)
		}
	}
}

// TestMembersDroppedTwiceAreDrawnLikeNewcomers checks members that join in every epoch and do
// nothing. They get their seats back once. After that they are drawn like newcomers.
func TestMembersDroppedTwiceAreDrawnLikeNewcomers(t *testing.T) {
	config := testConfig()
	config.ProbationSteps, config.TotalSteps, config.GlobalBatchSizeStart, config.GlobalBatchSizeEnd = 2, 1000, 300, 300
	var honest, silent []string
	for i := range 16 {
		honest = append(honest, "m"+strconv.Itoa(i))
	}
	for i := range 7 {
		silent = append(silent, "s"+strconv.Itoa(i))
	}
	r := newRun(t, config, append(slices.Clone(honest), silent...)...)
	for epoch := range 6 {
		for _, name := range silent {
			if member, ok := r.Member(clientID(name)); ok {
				member.State = Dropped
			}
		}
		r.finishEpoch("x" + strconv.Itoa(epoch))
		for _, name := range silent {
			if !r.IsPending(clientID(name)) {
				r.join(name)
			}
		}
		if epoch == 2 {
			r.joinMany("new", 3)
		}
		r.startTraining()
		if members, _ := r.countNamed("m"); members != len(honest) {
			t.Fatalf("epoch %d: %d of %d members that did nothing wrong have seats", epoch, members, len(honest))
		}
		members, _ := r.countNamed("new")
		t.Logf("epoch %d: %d newcomers have seats", epoch, members)
		if epoch >= 4 && members != 3 {
			t.Errorf("epoch %d: %d of 3 newcomers have seats", epoch, members)
		}
	}
	if err := r.Check(); err != nil {
		t.Error(err)
	}
}

// TestProbationLeft checks the number of rounds in which a newcomer's results do not count. It is 0 while
// all members are new.
func TestProbationLeft(t *testing.T) {
	config := testConfig()
	config.ProbationSteps, config.TotalSteps = 3, 1000
	r := newRun(t, config, "a", "b", "c")
	of := func(name string) uint32 { return r.ProbationLeft(clientID(name)) }
	r.startTraining()
	if of("a") != 0 || of("x") != 0 {
		t.Errorf("in the first epoch, %d and %d rounds to go", of("a"), of("x"))
	}
	r.finishEpoch("1")
	r.join("new")
	r.startTraining()
	m, _ := r.Member(clientID("new"))
	if want := m.ProbationUntil - r.Progress.Step; of("new") != want || want == 0 || of("a") != 0 {
		t.Errorf("%d and %d rounds to go, want %d and 0", of("new"), of("a"), want)
	}
	r.Authority.Permissioned = true
	if of("new") != 0 {
		t.Errorf("in a permissioned run, %d rounds to go", of("new"))
	}
}
