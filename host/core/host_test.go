package core

import (
	"errors"
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/psyche-go/psyche/base/hashchain"
	"github.com/psyche-go/psyche/base/identity"
	"github.com/psyche-go/psyche/core/coordinator"
	"github.com/psyche-go/psyche/record/follow"
	"github.com/psyche-go/psyche/record/wire"
)

var testTimes = Times{WithdrawGrace: 10 * time.Second, RestartGrace: 20 * time.Second, Push: time.Second, PushEach: 100 * time.Millisecond}

// rig is a host with its connections and its recorded effects.
type rig struct {
	t      testing.TB
	host   *Host
	live   map[identity.ID]Origin
	behind map[identity.ID]bool // connected members that do not have the log yet
	now    Now
	nonce  uint64
	times  Times
	draws  *hashchain.Chain
	begun  follow.Genesis
	said   []string // effects of the host, in order
	shown  []coordinator.State
	errors []error
	moved  []coordinator.RunState
	log    [][]byte // durable records, without the genesis
}

func key(n byte) identity.Key { return identity.FromSeed([identity.SeedSize]byte{n}) }

const hostKey = 200

// newRig begins a run.
func newRig(t testing.TB, times Times, change func(*coordinator.Config)) *rig {
	t.Helper()
	config := coordinator.Config{
		WarmupTime: 60_000, CooldownTime: 60_000, RoundsPerEpoch: 4, MaxRoundTrainTime: 60_000, RoundWitnessTime: 1000,
		WaitingForMembersExtraTime: 1000, GlobalBatchSizeStart: 64, GlobalBatchSizeEnd: 64, TotalSteps: 8, InitMinClients: 2, MinClients: 1,
	}
	if change != nil {
		change(&config)
	}
	r := &rig{
		t: t, live: make(map[identity.ID]Origin), times: times, draws: hashchain.New([32]byte{1}, 16),
		now: Now{time.Unix(1_700_000_000, 0), 1_700_000_000_000},
	}
	state, err := coordinator.Genesis{
		RunID: "run", Host: coordinator.ClientID(key(hostKey).ID()), Config: config, Draws: r.draws.Commitment(),
		Model: coordinator.Model{MaxSeqLen: 16, Checkpoint: coordinator.Checkpoint{Kind: coordinator.CheckpointDummy}},
	}.State()
	if err != nil {
		t.Fatal(err)
	}
	if r.begun, err = follow.NewGenesis(key(hostKey), [32]byte{}, &state); err != nil {
		t.Fatal(err)
	}
	r.restart()
	return r
}

// restart creates a host from the durable records.
func (r *rig) restart() {
	r.t.Helper()
	log, err := follow.Begin(r.begun)
	for _, record := range r.log {
		if err == nil {
			_, err = log.Apply(record)
		}
	}
	if err != nil {
		r.t.Fatal(err)
	}
	r.host = New(log, r.now, Options{
		Times: r.times, Draws: r.draws, Sign: r.signer(key(hostKey)),
		Connection: func(id identity.ID) (Origin, bool) { from, live := r.live[id]; return from, live },
		Behind:     func(id identity.ID) bool { return r.behind[id] },
		Moved:      func(before coordinator.RunState) { r.moved = append(r.moved, before) },
	})
}

func (r *rig) signer(k identity.Key) func(uint64, coordinator.Action) wire.SignedAction {
	return func(nonce uint64, a coordinator.Action) wire.SignedAction {
		signed, err := wire.OpenAction(wire.SignAction(k, r.begun.Run(), nonce, a), r.begun.Run())
		if err != nil {
			r.t.Fatal(err)
		}
		return signed
	}
}

// submit submits a client's action.
func (r *rig) submit(n byte, a coordinator.Action) {
	r.nonce++
	r.host.Submit(r.now, r.signer(key(n))(r.nonce, a), r.live[key(n).ID()], func(err error) {
		r.said, r.errors = append(r.said, "answered"), append(r.errors, err)
	})
}

// flush makes all records durable and lets the host continue.
func (r *rig) flush() {
	r.t.Helper()
	records, err := r.host.Ready()
	if err != nil {
		r.t.Fatal(err)
	}
	if len(records) > 0 {
		r.said = append(r.said, "durable")
	}
	for _, record := range records {
		r.log = append(r.log, record.Payload)
	}
	r.errors = nil
	r.host.Advance(r.now, r.publish)
}

// do submits one action and returns its answer.
func (r *rig) do(n byte, a coordinator.Action) error {
	r.t.Helper()
	r.submit(n, a)
	r.host.Tick(r.now)
	r.flush()
	return r.errors[0]
}

// pass advances the time and ticks the host.
func (r *rig) pass(d time.Duration) {
	r.t.Helper()
	r.now.Time, r.now.Clock = r.now.Time.Add(d), r.now.Clock+uint64(d.Milliseconds())
	r.host.Tick(r.now)
	r.flush()
}

func (r *rig) connect(members ...byte) {
	for _, n := range members {
		r.live[key(n).ID()] = Origin{}
	}
}

func (r *rig) publish(u Update) {
	if u.Changed {
		r.said = append(r.said, "published")
		r.shown = append(r.shown, u.State.Clone())
	}
}

func (r *rig) state() *coordinator.State { return &r.host.Log().State }

// TestOrder checks the order of effects: durable, then published, then answered.
func TestOrder(t *testing.T) {
	r := newRig(t, Times{}, nil)
	r.flush()
	r.said = nil
	r.submit(1, coordinator.Join{})
	r.submit(2, coordinator.Join{})
	r.submit(2, coordinator.Join{})
	r.flush()
	if want := []string{"durable", "published", "answered", "answered", "answered"}; !slices.Equal(r.said, want) {
		t.Errorf("the host did %v, want %v", r.said, want)
	}
	if r.errors[0] != nil || r.errors[1] != nil || !errors.Is(r.errors[2], coordinator.ErrDuplicate) {
		t.Errorf("answers %v", r.errors)
	}
	if len(r.shown[len(r.shown)-1].Pending) != 2 {
		t.Error("an answered action was not published")
	}
}

// TestContractIsEnforced calls a host in an order that would publish a state that is not durable.
func TestContractIsEnforced(t *testing.T) {
	for name, misuse := range map[string]func(*rig){
		"Advance before Ready": func(r *rig) { r.host.Advance(r.now, r.publish) },
		"Submit after Ready":   func(r *rig) { _, _ = r.host.Ready(); r.submit(1, coordinator.Join{}) },
		"Act after Ready":      func(r *rig) { _, _ = r.host.Ready(); _ = r.host.Act(r.now, coordinator.SetPaused{Paused: true}) },
		"Digest after Ready":   func(r *rig) { _, _ = r.host.Ready(); r.host.Digest() },
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, Times{}, nil)
			defer func() {
				if recover() == nil {
					t.Error("the host continued")
				}
			}()
			misuse(r)
		})
	}
}

// TestChangesWithinAPhaseWait checks that joins are published together, and actions of authorities
// at once.
func TestChangesWithinAPhaseWait(t *testing.T) {
	r := newRig(t, testTimes, func(c *coordinator.Config) { c.InitMinClients = 9 })
	r.connect(1, 2, 3)
	r.flush()
	for _, test := range []struct {
		name   string
		after  time.Duration
		action func()
		shown  int           // total number of updates
		due    time.Duration // time until a delayed update may be published
	}{
		{"a join waits", 0, func() { r.submit(1, coordinator.Join{}) }, 1, 1100 * time.Millisecond},
		{"and another one", time.Second, func() { r.submit(2, coordinator.Join{}) }, 1, 200 * time.Millisecond},
		{"both are shown", 200 * time.Millisecond, func() {}, 2, 1200 * time.Millisecond},
		{"a join waits again", 100 * time.Millisecond, func() { r.submit(3, coordinator.Join{}) }, 2, 1200 * time.Millisecond},
		{"the authority's word is shown at once", 0, func() { r.submit(hostKey, coordinator.SetPaused{Paused: true}) }, 3, 1<<63 - 1},
	} {
		r.pass(test.after)
		test.action()
		r.host.Tick(r.now)
		r.flush()
		if len(r.shown) != test.shown {
			t.Errorf("%s: %d updates, want %d", test.name, len(r.shown), test.shown)
		}
		if due := r.host.Due(r.now); due != test.due {
			t.Errorf("%s: due after %v, want %v", test.name, due, test.due)
		}
	}
}

// TestWithdrawal checks that a disconnected client is withdrawn after the grace period, but not if
// it reconnects in time.
func TestWithdrawal(t *testing.T) {
	for _, test := range []struct {
		name  string
		grace time.Duration
		back  time.Duration // time until it reconnects; 0: never
		look  time.Duration
		there bool
	}{
		{"before the grace", 10 * time.Second, 0, 9 * time.Second, true},
		{"after the grace", 10 * time.Second, 0, 11 * time.Second, false},
		{"back in time", 10 * time.Second, 9 * time.Second, 30 * time.Second, true},
		{"never", -1, 0, time.Hour, true},
		{"at once", 0, 0, time.Second, false},
	} {
		t.Run(test.name, func(t *testing.T) {
			times := testTimes
			times.WithdrawGrace = test.grace
			r := newRig(t, times, func(c *coordinator.Config) { c.InitMinClients = 9 })
			r.connect(1, 2)
			if err := errors.Join(r.do(1, coordinator.Join{}), r.do(2, coordinator.Join{})); err != nil {
				t.Fatal(err)
			}
			delete(r.live, key(1).ID())
			for elapsed := time.Duration(0); elapsed <= test.look; elapsed += 500 * time.Millisecond {
				r.pass(500 * time.Millisecond)
				if elapsed == test.back && test.back > 0 {
					r.connect(1)
				}
			}
			if there := r.state().IsPending(coordinator.ClientID(key(1).ID())); there != test.there {
				t.Errorf("pending: %v, want %v", there, test.there)
			}
			if !r.state().IsPending(coordinator.ClientID(key(2).ID())) {
				t.Error("a connected client was withdrawn")
			}
		})
	}
}

// TestRestartHoldsRounds checks that after a restart no phase ends until all members are back or
// the restart grace period is over.
func TestRestartHoldsRounds(t *testing.T) {
	for _, test := range []struct {
		name   string
		back   []byte
		behind byte // member that catches up; 0: none
		after  time.Duration
		holds  bool
		client int // number of members that still take part
	}{
		{"nobody is back", nil, 0, 19 * time.Second, true, 2},
		{"one is back", []byte{1}, 0, 19 * time.Second, true, 2},
		{"all are back", []byte{1, 2}, 0, 0, false, 2},
		{"one does not come", []byte{1}, 0, 20 * time.Second, false, 1},
		{"one catches up", []byte{1, 2}, 2, 19 * time.Second, true, 2},
		{"one catches up for long and stays a member", []byte{1, 2}, 2, time.Hour, false, 2},
	} {
		t.Run(test.name, func(t *testing.T) {
			r := newRig(t, testTimes, nil)
			r.connect(1, 2)
			r.submit(1, coordinator.Join{})
			r.submit(2, coordinator.Join{})
			r.pass(0)
			r.pass(time.Second) // Warmup begins
			clear(r.live)
			r.restart()
			r.behind = map[identity.ID]bool{key(test.behind).ID(): true}
			r.connect(test.back...)
			r.pass(test.after)
			if r.host.Holds() != test.holds {
				t.Errorf("holds: %v, want %v", r.host.Holds(), test.holds)
			}
			if n := r.state().HealthyCount(); n != test.client {
				t.Errorf("%d healthy members, want %d", n, test.client)
			}
			if test.holds && len(r.moved) != 1 {
				t.Errorf("the run changed its phase while the host waited: %v", r.moved)
			}
		})
	}
}

// TestSeatsOfANetwork checks that the number of seats of one network is limited, including the
// seats of clients that left for a while.
func TestSeatsOfANetwork(t *testing.T) {
	r := newRig(t, Times{WithdrawGrace: -1}, nil)
	small := Origin{netip.MustParsePrefix("203.0.113.0/24"), 2}
	for n := range byte(4) {
		r.live[key(n).ID()] = small
	}
	r.connect(9)
	if err := errors.Join(r.do(0, coordinator.Join{}), r.do(1, coordinator.Join{})); err != nil {
		t.Fatal(err)
	}
	var full *seatsError
	if err := r.do(2, coordinator.Join{}); !errors.Is(err, coordinator.ErrFull) || !errors.As(err, &full) || full.Taken != 2 {
		t.Errorf("a third client of the network: %v", err)
	}
	if err := r.do(9, coordinator.Join{}); err != nil {
		t.Errorf("a client of a different network: %v", err)
	}
	r.pass(time.Second)
	if s := r.state(); s.RunState != coordinator.Warmup {
		t.Fatal(s.RunState)
	}
	if err := r.do(0, coordinator.Withdraw{Client: coordinator.ClientID(key(0).ID())}); err != nil {
		t.Fatal(err)
	}
	delete(r.live, key(0).ID())
	if err := r.do(2, coordinator.Join{}); !errors.Is(err, coordinator.ErrFull) {
		t.Errorf("the seat of an absent member was given to a different client: %v", err)
	}
}

// TestKnown checks that members of the newest epoch, pending clients, authorities and delegates are
// known. In a finished run, only connected members count as participants.
func TestKnown(t *testing.T) {
	r := newRig(t, Times{}, nil)
	s := r.state()
	s.Epoch.Clients = []coordinator.Client{{ID: coordinator.ClientID{1}, State: coordinator.Dropped}}
	s.Epoch.Exited = []coordinator.Client{{ID: coordinator.ClientID{2}, State: coordinator.Withdrawn}}
	s.Authority.Main, s.Authority.Join = coordinator.ClientID{4}, coordinator.ClientID{5}
	s.Authority.Authorizations = []coordinator.Authorization{{Grantee: coordinator.ClientID{6}, Delegates: []coordinator.ClientID{{7}}}}
	if found := r.host.Participants(); len(found) != 0 {
		t.Errorf("participants %v, want none", found)
	}
	s.Pending = []coordinator.Client{{ID: coordinator.ClientID{3}}}
	for n := range byte(7) {
		if !r.host.Known()[identity.ID{n + 1}] {
			t.Errorf("key %d is not known", n+1)
		}
	}
	if !r.host.Known()[key(hostKey).ID()] {
		t.Error("the host is not known")
	}
	s.RunState = coordinator.Finished
	if found := r.host.Participants(); len(found) != 0 {
		t.Errorf("participants without a connection: %v", found)
	}
	r.live[identity.ID{2}] = Origin{}
	if found := r.host.Participants(); len(found) != 1 || found[0] != (identity.ID{2}) {
		t.Errorf("participants: %v", found)
	}
}

// TestHostWithdrawsClientsAfterAnUseOfItsKey checks that a host can still withdraw clients after
// its key was used as an authority's key.
func TestHostWithdrawsClientsAfterAnUseOfItsKey(t *testing.T) {
	r := newRig(t, Times{}, nil)
	r.connect(1)
	if err := r.do(1, coordinator.Join{}); err != nil {
		t.Fatal(err)
	}
	r.nonce = uint64(r.now.Time.Add(time.Hour).UnixNano())
	if err := errors.Join(r.do(hostKey, coordinator.SetPaused{Paused: true}), r.do(hostKey, coordinator.SetPaused{})); err != nil {
		t.Fatal(err)
	}
	if err := r.host.Act(r.now, coordinator.Withdraw{Client: coordinator.ClientID(key(1).ID())}); err != nil {
		t.Error(err)
	}
}

// TestDraws checks that a host without its draws stops, and that it refuses rules that need more
// draws than it has.
func TestDraws(t *testing.T) {
	r := newRig(t, Times{WithdrawGrace: -1}, nil)
	update := coordinator.UpdateConfig{Config: r.state().Config, Model: r.state().Model}
	update.Config.TotalSteps = 17
	if err := errors.Join(r.do(hostKey, coordinator.SetPaused{Paused: true}), nil); err != nil {
		t.Fatal(err)
	}
	if err := r.do(hostKey, update); !errors.Is(err, coordinator.ErrInvalidConfig) {
		t.Errorf("17 rounds with 16 draws: %v", err)
	}
	update.Config.TotalSteps = 16
	if err := r.do(hostKey, update); err != nil {
		t.Errorf("16 rounds with 16 draws: %v", err)
	}
	r.state().DrawCommitment[0] ^= 1
	r.host.Tick(r.now)
	if _, err := r.host.Ready(); !errors.Is(err, ErrDraws) {
		t.Errorf("a host without its draws continues: %v", err)
	}
}

// TestEpochsAreMarked checks that the record that began an epoch contains the epoch's initial
// state.
func TestEpochsAreMarked(t *testing.T) {
	r := newRig(t, Times{}, nil)
	r.connect(1, 2)
	r.submit(1, coordinator.Join{})
	r.submit(2, coordinator.Join{})
	r.host.Tick(r.now)
	r.flush()
	r.now.Clock += 1000
	r.host.Tick(r.now)
	records, err := r.host.Ready()
	if err != nil || len(records) != 1 || records[0].Began == nil {
		t.Fatalf("records %v, %v", records, err)
	}
	if s, err := coordinator.Decode(records[0].Began); err != nil || s.RunState != coordinator.Warmup {
		t.Errorf("the epoch begins in %v, %v", s.RunState, err)
	}
}
