package testnet

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"math"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"github.com/psyche-go/psyche/base/identity"
	"github.com/psyche-go/psyche/base/pause"
	"github.com/psyche-go/psyche/core/coordinator"
	"github.com/psyche-go/psyche/record/config"
	"github.com/psyche-go/psyche/record/event"
)

// eventsFile is the name of a client's event log in its events folder.
const eventsFile = "events.jsonl"

// ejectedShown is the number of newest ejections in the progress.
const ejectedShown = 3

// ratedRounds is the number of newest rounds over which speed is measured.
const ratedRounds = 10

// Progress is the progress of the run at one moment.
type Progress struct {
	RunID      string
	Name       string        // display name of the run; empty: none
	Began      time.Time     // first event of this sitting; zero: none yet
	State      event.State   // the newest state that any client saw
	Since      time.Time     // start of its phase; zero: none yet
	MinClients int           // required for the first epoch
	Results    int           // known results of the running round, of State.Batches
	Losses     []RoundLoss   // of the rounds with results, in order; read-only
	Tokens     uint64        // trained so far
	TokensRate float64       // tokens per second over the last rounds
	Left       time.Duration // estimated time for the remaining rounds; 0: not known
	Clients    []ClientProgress
	Trials     []event.OpenTrial // open now
	Ejected    []event.Ejected   // the newest, oldest first
	Audits     map[string]int    // reported by clients, by result; read-only
	Notes      []string          // special events since the previous Progress
	Changed    bool              // the phase differs from the previous Progress
}

// Newest returns the loss of the newest round with results; zero if there is none.
func (p Progress) Newest() RoundLoss {
	if len(p.Losses) == 0 {
		return RoundLoss{}
	}
	return p.Losses[len(p.Losses)-1]
}

// NameOf returns the name of a client of the network, or the beginning of the key of another
// client.
func (p Progress) NameOf(id string) string {
	for _, client := range p.Clients {
		if client.ID == id {
			return client.Name
		}
	}
	return id[:min(len(id), 8)]
}

// tracker computes the progress from all clients' events. It is safe for concurrent use.
type tracker struct {
	mu         sync.Mutex
	runID      string
	runName    string // for display
	ids        []string
	totalSteps uint32
	minClients int
	seqLen     uint64
	state      event.State
	stateTime  time.Time
	phaseTime  time.Time // start of the state's phase
	clients    map[string]*clientRecord
	stepEnded  []stepTime // of the newest rounds, oldest first
	notes      []note
	began      time.Time         // first event
	newest     time.Time         // of the events so far
	tried      map[string]*trial // by accused
	trials     []event.OpenTrial
	trialsTime time.Time
	ejected    []event.Ejected
	marks      []lossMark // the newest
	audits     map[string]int
	cheats     map[string]*cheating // by id
	since      time.Time            // of a resumed run; earlier events are not reported
	drawn      []RoundLoss          // cached result of losses; nil: outdated
}

type stepTime struct {
	step uint32
	at   time.Time
}

func newTracker(ids []identity.ID, run config.Run) *tracker {
	t := &tracker{
		runID: run.RunID, runName: run.Model.Name, totalSteps: run.Config.TotalSteps, minClients: int(run.Config.InitMinClients), seqLen: uint64(run.Model.MaxSeqLen),
		clients: map[string]*clientRecord{}, audits: map[string]int{}, cheats: map[string]*cheating{}, tried: map[string]*trial{},
	}
	for _, id := range ids {
		t.ids = append(t.ids, id.String())
		t.clients[id.String()] = &clientRecord{trained: map[uint32]trainedRound{}, applied: map[uint32]appliedRound{}, lostBatches: map[event.Batch]bool{}}
	}
	return t
}

// restarted records the start of a client's next life.
func (t *tracker) restarted(id identity.ID) {
	t.mu.Lock()
	defer t.mu.Unlock()
	client := t.clients[id.String()]
	client.restarts++
	client.down = false
	t.say(t.newest, "%s restarted", t.name(id.String()))
}

// killed records that a client's process was killed and will be restarted.
func (t *tracker) killed(id identity.ID) {
	t.mu.Lock()
	defer t.mu.Unlock()
	client := t.clients[id.String()]
	client.down = true
	client.stopMoving()
	t.mark(wasKilled)
}

// name returns the displayed name of a client: its number, or its key if it is not part of the
// network.
func (t *tracker) name(id string) string {
	if !slices.Contains(t.ids, id) {
		return id[:min(len(id), 8)]
	}
	return clientName(slices.Index(t.ids, id))
}

// add processes an event of a client and reports whether the run's phase changed.
func (t *tracker) add(id string, e event.Event) (changed bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if e.Time.After(t.newest) {
		t.newest = e.Time
	}
	if t.isNews(e) && (t.began.IsZero() || e.Time.Before(t.began)) {
		t.began = e.Time
	}
	if !t.isNews(e) {
		defer func(notes []note) { t.notes, changed = notes, false }(t.notes)
	}
	if state, ok := e.Body.(event.State); ok {
		return t.addState(e.Time, state)
	}
	t.addCheating(id, e)
	t.addRun(id, e.Time, e.Body)
	t.clients[id].see(e)
	return false
}

// addRun processes the information about the run in a client's event.
func (t *tracker) addRun(id string, at time.Time, body event.Body) {
	switch body := body.(type) {
	case event.Trained:
		t.drawn = nil
	case event.Desynchronised:
		if !slices.Contains(t.state.Members, id) && t.cheats[id] != nil {
			return // its ejection is reported
		}
		if !slices.Contains(t.state.Members, id) { // its earlier model is no longer useful
			t.say(at, "%s is no longer a member: %s", t.name(id), body.Reason)
			return
		}
		t.clients[id].lost = true
		t.say(at, "%s lost the run's model: %s", t.name(id), body.Reason)
	case event.Rejoined:
		c := t.clients[id]
		if c.back || c.modelReported { // it has caught up once more, or its starting model was reported
			return
		}
		t.say(at, "%s rejoined in round %d, with %s", t.name(id), body.Step, modelOf(c.loaded))
	case event.Ready:
		if c := t.clients[id]; !t.since.IsZero() && !at.Before(t.since) && !c.modelReported {
			c.modelReported = true
			t.say(at, "%s continues with %s", t.name(id), modelOf(body))
		}
	case event.Trials:
		if !at.Before(t.trialsTime) {
			t.trials, t.trialsTime = body.Open, at
		}
	case event.Audit:
		t.audits = maps.Clone(t.audits) // copied, because readers may hold the old map
		t.audits[body.Outcome]++
	case event.Ejected:
		t.addEjected(at, body)
	}
}

// modelOf describes the model that a client loaded, and its source.
func modelOf(m event.Ready) string {
	from, known := map[string]string{
		"disk": "its disk", "peers": "its peers", "results": "its earlier model and the later results of its peers", "archive": "an uploaded copy",
	}[m.Source]
	switch {
	case m.Source == "initial":
		return "the run's initial model"
	case known:
		return fmt.Sprintf("the model of step %d from %s", m.Step, from)
	}
	return fmt.Sprintf("the model of step %d", m.Step)
}

// keptEjections is the number of stored ejections, which exceeds the number in force at a time.
const keptEjections = 2 * coordinator.MaxEjections

// addEjected stores an ejection that no other client has reported.
func (t *tracker) addEjected(at time.Time, e event.Ejected) {
	same := func(o event.Ejected) bool { return o.Client == e.Client && o.Until == e.Until }
	if slices.ContainsFunc(t.ejected, same) {
		return
	}
	t.ejected = append(t.ejected, e)
	t.ejected = t.ejected[max(0, len(t.ejected)-keptEjections):]
	t.mark(wasEjected)
	t.tellEjection(at, e)
}

// finished reports whether the run is over. A client that is killed then cannot rejoin.
func (t *tracker) finished() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.state.RunState == coordinator.Finished.String()
}

// paused returns the newest state, the number of clients that have saved the model of its last
// step, and one of their checkpoint folders.
func (t *tracker) paused() (state event.State, saved int, dir string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, id := range t.ids {
		if c := t.clients[id]; c.checkpointStep+1 == t.state.Step && c.savedStep == c.checkpointStep {
			saved++
			dir = cmp.Or(dir, c.checkpointDir)
		}
	}
	return t.state, saved, dir
}

// living returns the number of participating clients, according to their events.
func (t *tracker) living() (n int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, c := range t.clients {
		if c.ready && !c.down && !c.lost && !c.gaveUp && !c.ended {
			n++
		}
	}
	return n
}

// isNews reports whether an event happened after the run was resumed.
func (t *tracker) isNews(e event.Event) bool { return !e.Time.Before(t.since) }

// addState stores the newest state that any client has seen. Clients see the same states at
// slightly different times, and an older state must not replace a newer one.
func (t *tracker) addState(at time.Time, state event.State) (changed bool) {
	order := cmp.Or(cmp.Compare(state.Epoch, t.state.Epoch), cmp.Compare(phaseOrder(state), phaseOrder(t.state)))
	if order < 0 || order == 0 && at.Before(t.stateTime) {
		return false
	}
	if state.Step > t.state.Step {
		t.stepEnded = append(t.stepEnded, stepTime{t.state.Step, at})
		t.stepEnded = t.stepEnded[max(0, len(t.stepEnded)-ratedRounds):]
	}
	t.seat(state)
	if order > 0 || t.phaseTime.IsZero() {
		t.phaseTime = at
	}
	state.HeldOut = cmp.Or(state.HeldOut, t.state.HeldOut) // an epoch begins without claims
	t.state, t.stateTime = state, at
	return order > 0
}

// seat updates which clients are members of the epoch.
func (t *tracker) seat(state event.State) {
	if state.Epoch != t.state.Epoch || state.RunState == coordinator.WaitingForMembers.String() {
		for _, client := range t.clients {
			client.seated = false
		}
	}
	for _, id := range state.Members {
		if client := t.clients[id]; client != nil {
			client.seated = true
		}
	}
}

// phaseOrder numbers the phases of an epoch in their order.
func phaseOrder(state event.State) uint64 {
	round := uint64(state.Step) << 2
	switch state.RunState {
	case coordinator.Warmup.String():
		return 1
	case coordinator.RoundTrain.String():
		return round + 1
	case coordinator.RoundWitness.String():
		return round + 2
	case coordinator.Cooldown.String():
		return round + 3 // its step is the next round's
	case coordinator.Finished.String():
		return math.MaxUint64
	default:
		return 0
	}
}

// progress returns the current progress, with the notes that are due.
func (t *tracker) progress() Progress { return t.progressAt(time.Now(), false) }

// progressAt returns the progress at a time, with all notes if all is true.
func (t *tracker) progressAt(now time.Time, all bool) Progress {
	t.mu.Lock()
	defer t.mu.Unlock()
	p := Progress{
		RunID:      t.runID,
		Name:       t.runName,
		Began:      t.began,
		State:      t.state,
		Since:      t.phaseTime,
		MinClients: t.minClients,
		Results:    t.results(),
		Losses:     t.losses(),
		Trials:     slices.Clone(t.trials),
		Audits:     t.audits,
		Ejected:    slices.Clone(t.ejected[max(0, len(t.ejected)-ejectedShown):]),
		Notes:      t.takeNotes(now, all),
	}
	p.State.TotalSteps = t.totalSteps
	for i := range t.ids {
		p.Clients = append(p.Clients, t.clientProgress(i))
	}
	for _, loss := range p.Losses {
		p.Tokens += loss.Tokens
	}
	p.TokensRate = t.tokensRate(p.Losses)
	if step := t.state.Step; step > 0 && step <= t.totalSteps && t.state.RunState != coordinator.Finished.String() {
		p.Left = time.Duration(float64(t.totalSteps-step+1) * t.roundSeconds() * float64(time.Second))
	}
	return p
}

// tokensRate is the number of tokens of the newest complete rounds divided by their duration.
func (t *tracker) tokensRate(losses []RoundLoss) float64 {
	if len(t.stepEnded) < 2 {
		return 0
	}
	first, last := t.stepEnded[0], t.stepEnded[len(t.stepEnded)-1]
	var tokens uint64
	for _, loss := range losses {
		if loss.Step > first.step && loss.Step <= last.step {
			tokens += loss.Tokens
		}
	}
	seconds := last.at.Sub(first.at).Seconds()
	if seconds <= 0 {
		return 0
	}
	return float64(tokens) / seconds
}

// RoundLoss is the mean training loss of the results of one round.
type RoundLoss struct {
	Step   uint32
	Loss   float64 // nats per token, weighted by tokens
	Tokens uint64
}

// losses returns the rounds with at least one result, in order. Callers must not modify the result.
func (t *tracker) losses() []RoundLoss {
	if t.drawn != nil {
		return t.drawn
	}
	rounds := map[uint32]*RoundLoss{}
	for _, id := range t.ids {
		for step, trained := range t.clients[id].trained {
			round := rounds[step]
			if round == nil {
				round = &RoundLoss{Step: step}
				rounds[step] = round
			}
			round.Loss += trained.loss * float64(trained.tokens)
			round.Tokens += uint64(trained.tokens)
		}
	}
	losses := make([]RoundLoss, 0, len(rounds))
	for round := range maps.Values(rounds) {
		round.Loss /= float64(max(round.Tokens, 1))
		losses = append(losses, *round)
	}
	slices.SortFunc(losses, func(a, b RoundLoss) int { return cmp.Compare(a.Step, b.Step) })
	t.drawn = losses
	return losses
}

// showEvery is the interval of display updates within a phase.
const showEvery = 500 * time.Millisecond

// show passes the current progress to the display.
func (n *network) show(changed bool) {
	p := n.progress.progress()
	p.Changed = changed
	n.options.Display.Update(p)
}

// showLast passes the progress with all remaining notes to the display.
func (n *network) showLast() { n.options.Display.Update(n.progress.progressAt(time.Now(), true)) }

// showWhile updates the display within phases, until ctx ends.
func (n *network) showWhile(ctx context.Context) {
	for pause.For(ctx, showEvery) == nil {
		n.show(false)
	}
}

// follow reads every client's event log as it grows, until following ends, and updates the
// progress. Until ctx ends it triggers the faults.
func (n *network) follow(followers *sync.WaitGroup, following, ctx context.Context, fail context.CancelCauseFunc) {
	faults := newFaultScript(n.options.Faults)
	for i, id := range n.ids {
		followers.Go(func() {
			for e, err := range event.Follow(following, filepath.Join(n.eventsDir(i), eventsFile)) {
				if err != nil {
					fail(err)
					return
				}
				if n.progress.add(id.String(), e) && ctx.Err() == nil {
					n.show(true)
				}
				if state, ok := e.Body.(event.State); ok && n.progress.isNews(e) && ctx.Err() == nil {
					if err := n.strike(faults.due(state)); err != nil {
						fail(err)
						return
					}
				}
			}
		})
	}
}

// strike kills the processes of a blow.
func (n *network) strike(blow blow) error {
	if blow.server {
		n.progress.remark("server killed in round %d", blow.step)
		if err := n.server.Kill(); err != nil {
			return err
		}
	}
	if blow.client {
		random := newRandom(n.options.Faults.Seed, uint64(blow.step))
		for _, victim := range n.options.Faults.victims(len(n.clients), 1, random) {
			n.progress.remark("%s killed in round %d", n.clients[victim].Name, blow.step)
			if err := n.clients[victim].Kill(); err != nil {
				return err
			}
		}
	}
	return nil
}

// killAtRandom kills some clients at every interval, until the run is over or ctx ends.
func (n *network) killAtRandom(ctx context.Context, fail context.CancelCauseFunc) {
	faults := n.options.Faults
	random := newRandom(faults.Seed, 0)
	for pause.For(ctx, faults.RandomInterval) == nil && !n.progress.finished() {
		for _, victim := range faults.victims(len(n.clients), faults.RandomKillNum, random) {
			n.progress.remark("%s killed", n.clients[victim].Name)
			if err := n.clients[victim].Kill(); err != nil {
				fail(err)
				return
			}
		}
	}
}
