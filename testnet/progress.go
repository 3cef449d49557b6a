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

	"github.com/psyche-go/psyche/config"
	"github.com/psyche-go/psyche/coordinator"
	"github.com/psyche-go/psyche/event"
	"github.com/psyche-go/psyche/identity"
)

// eventsFile is the name of a client's event log in its events folder.
const eventsFile = "events.jsonl"

// ejectedShown is how many of the newest ejections are part of the progress.
const ejectedShown = 3

// ratedRounds is the number of newest rounds over which speed is measured.
const ratedRounds = 10

// Progress is what is known of the run at one moment.
type Progress struct {
	RunState   string
	Epoch      uint32
	Step       uint32 // of the running round
	TotalSteps uint32
	Loss       float64 // mean over the clients of the newest round with results
	LossStep   uint32
	Tokens     uint64  // trained so far
	TokensRate float64 // tokens per second over the last rounds
	Pending    int     // clients that wait for the next epoch
	Clients    []ClientProgress
	Trials     []event.OpenTrial // open now
	Ejected    []event.Ejected   // the newest, oldest first
	Notes      []string          // what happened out of the ordinary since the last one
}

// NameOf returns the name of a client of the network, and of another one the beginning of its key.
func (p Progress) NameOf(id string) string {
	for _, client := range p.Clients {
		if client.ID == id {
			return client.Name
		}
	}
	return id[:min(len(id), 8)]
}

// ClientProgress is what is known of one client.
type ClientProgress struct {
	Name     string
	ID       string
	Member   bool // a healthy member of the epoch
	Witness  bool // elected in the running round
	Loss     float64
	Sent     uint64 // bytes on the wire to its peers, all lives together
	Restarts int
}

// clientRecord gathers one client's events.
type clientRecord struct {
	sentBefore     uint64 // by lives that have ended
	sent           uint64 // by the current one
	payloadBefore  uint64
	payload        uint64
	modelBefore    uint64
	model          uint64
	paidBefore     event.Paid
	paid           event.Paid
	trained        map[uint32]event.Trained
	counted        map[uint32]event.Applied
	loss           float64
	restarts       int
	rejoined       bool
	desynchronised int
	digest         string // of the newest checkpoint
	checkpointStep uint32
	checkpointDir  string
	finishedDigest string
}

// tracker is the projection of all clients' events. It is safe for concurrent use.
type tracker struct {
	mu         sync.Mutex
	ids        []string
	totalSteps uint32
	seqLen     uint64
	state      event.State
	stateTime  time.Time
	clients    map[string]*clientRecord
	stepEnded  []stepTime // of the newest rounds, oldest first
	notes      []string
	trials     []event.OpenTrial
	trialsTime time.Time
	ejected    []event.Ejected
	since      time.Time // of a resumed run; what was before is no news
}

type stepTime struct {
	step uint32
	at   time.Time
}

func newTracker(ids []identity.ID, run config.Run) *tracker {
	t := &tracker{totalSteps: run.Config.TotalSteps, seqLen: uint64(run.Model.MaxSeqLen), clients: map[string]*clientRecord{}}
	for _, id := range ids {
		t.ids = append(t.ids, id.String())
		t.clients[id.String()] = &clientRecord{trained: map[uint32]event.Trained{}, counted: map[uint32]event.Applied{}}
	}
	return t
}

// restarted notes that a client's next life has begun.
func (t *tracker) restarted(id identity.ID) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.clients[id.String()].restarts++
	t.notes = append(t.notes, fmt.Sprintf("%s started again", t.name(id.String())))
}

func (t *tracker) remark(format string, args ...any) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.notes = append(t.notes, fmt.Sprintf(format, args...))
}

// name is how a client is shown: by its number, or by its key if it is none of the network's own.
func (t *tracker) name(id string) string {
	if !slices.Contains(t.ids, id) {
		return id[:min(len(id), 8)]
	}
	return fmt.Sprintf("client-%d", slices.Index(t.ids, id)+1)
}

// add takes in one event of a client and reports whether the run's phase changed.
func (t *tracker) add(id string, e event.Event) (changed bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if !t.isNews(e) {
		defer func(notes []string) { t.notes, changed = notes, false }(t.notes)
	}
	client := t.clients[id]
	switch body := e.Body.(type) {
	case event.Started:
		client.sentBefore, client.sent = client.sentBefore+client.sent, 0
		client.payloadBefore, client.payload = client.payloadBefore+client.payload, 0
		client.modelBefore, client.model = client.modelBefore+client.model, 0
		client.endPaid()
	case event.State:
		return t.addState(e.Time, body)
	case event.Trained:
		client.trained[body.Step] = body
		client.loss = float64(body.Loss)
	case event.Applied:
		client.counted[body.Step] = body
	case event.Wire:
		client.sent, client.payload, client.model = body.P2PSent, body.PayloadSent, body.ModelReceived
	case event.Paid:
		client.paid = body
	case event.Checkpoint:
		client.digest, client.checkpointStep = body.Digest, body.Step
		if body.Dir != "" {
			client.checkpointDir = body.Dir
		}
	case event.Desynchronised:
		client.desynchronised++
		t.notes = append(t.notes, fmt.Sprintf("%s lost the run's model: %s", t.name(id), body.Reason))
	case event.Rejoined:
		client.rejoined = true
		t.notes = append(t.notes, fmt.Sprintf("%s is back, with the model of step %d from its peers", t.name(id), body.Step))
	case event.Trials:
		if !e.Time.Before(t.trialsTime) {
			t.trials, t.trialsTime = body.Open, e.Time
		}
	case event.Ejected:
		t.addEjected(body)
	case event.Finished:
		client.finishedDigest = body.Digest
	}
	return false
}

// keptEjections is how many are remembered: more than a run has in force at a time.
const keptEjections = 2 * coordinator.MaxEjections

// addEjected keeps an ejection that no other client has told of.
func (t *tracker) addEjected(e event.Ejected) {
	same := func(o event.Ejected) bool { return o.Client == e.Client && o.Until == e.Until }
	if slices.ContainsFunc(t.ejected, same) {
		return
	}
	t.ejected = append(t.ejected, e)
	t.ejected = t.ejected[max(0, len(t.ejected)-keptEjections):]
	t.notes = append(t.notes, fmt.Sprintf("%s is ejected until epoch %d: %s", t.name(e.Client), e.Until, e.Reason))
}

// finished reports whether the run is over: who is killed then cannot get back into it.
func (t *tracker) finished() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.state.RunState == coordinator.Finished.String()
}

// isNews reports whether an event is not of the time before the run was resumed.
func (t *tracker) isNews(e event.Event) bool { return !e.Time.Before(t.since) }

// addState keeps the newest state that any client has seen. Clients see the same states a
// little apart, and what one still sees does not take back what another has seen.
func (t *tracker) addState(at time.Time, state event.State) (changed bool) {
	order := cmp.Or(cmp.Compare(state.Epoch, t.state.Epoch), cmp.Compare(phaseOrder(state), phaseOrder(t.state)))
	if order < 0 || order == 0 && at.Before(t.stateTime) {
		return false
	}
	if state.Step > t.state.Step {
		t.stepEnded = append(t.stepEnded, stepTime{t.state.Step, at})
		t.stepEnded = t.stepEnded[max(0, len(t.stepEnded)-ratedRounds):]
	}
	t.state, t.stateTime = state, at
	return order > 0
}

// phaseOrder numbers the phases of an epoch in the order in which a run goes through
// them.
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

// progress returns what is known now, and forgets the notes.
func (t *tracker) progress() Progress {
	t.mu.Lock()
	defer t.mu.Unlock()
	p := Progress{
		RunState:   t.state.RunState,
		Epoch:      t.state.Epoch,
		Step:       t.state.Step,
		TotalSteps: t.totalSteps,
		Pending:    t.state.Pending,
		Trials:     slices.Clone(t.trials),
		Ejected:    slices.Clone(t.ejected[max(0, len(t.ejected)-ejectedShown):]),
		Notes:      t.notes,
	}
	t.notes = nil
	for i, id := range t.ids {
		client := t.clients[id]
		p.Clients = append(p.Clients, ClientProgress{
			Name:     fmt.Sprintf("client-%d", i+1),
			ID:       id,
			Member:   slices.Contains(t.state.Members, id),
			Witness:  slices.Contains(t.state.Elected, id),
			Loss:     client.loss,
			Sent:     client.sentBefore + client.sent,
			Restarts: client.restarts,
		})
	}
	losses := t.losses()
	if len(losses) > 0 {
		newest := losses[len(losses)-1]
		p.Loss, p.LossStep = newest.Loss, newest.Step
	}
	for _, loss := range losses {
		p.Tokens += loss.Tokens
	}
	p.TokensRate = t.tokensRate(losses)
	return p
}

// tokensRate is the tokens of the newest whole rounds divided by the time they took.
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

// losses returns the rounds with at least one result, in order.
func (t *tracker) losses() []RoundLoss {
	rounds := map[uint32]*RoundLoss{}
	for _, id := range t.ids {
		for step, trained := range t.clients[id].trained {
			round := rounds[step]
			if round == nil {
				round = &RoundLoss{Step: step}
				rounds[step] = round
			}
			round.Loss += float64(trained.Loss) * float64(trained.Tokens)
			round.Tokens += uint64(trained.Tokens)
		}
	}
	losses := make([]RoundLoss, 0, len(rounds))
	for round := range maps.Values(rounds) {
		round.Loss /= float64(max(round.Tokens, 1))
		losses = append(losses, *round)
	}
	slices.SortFunc(losses, func(a, b RoundLoss) int { return cmp.Compare(a.Step, b.Step) })
	return losses
}

// follow reads every client's event log as it grows, until following ends, and shows
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
					n.options.Display.Update(n.progress.progress())
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

// strike kills what the script says.
func (n *network) strike(blow blow) error {
	if blow.server {
		n.progress.remark("server killed in round %d", blow.step)
		if err := n.server.kill(); err != nil {
			return err
		}
	}
	if blow.client {
		random := newRandom(n.options.Faults.Seed, uint64(blow.step))
		for _, victim := range n.options.Faults.victims(len(n.clients), 1, random) {
			n.progress.remark("%s killed in round %d", n.clients[victim].name, blow.step)
			if err := n.clients[victim].kill(); err != nil {
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
	for sleep(ctx, faults.RandomInterval) == nil && !n.progress.finished() {
		for _, victim := range faults.victims(len(n.clients), faults.RandomKillNum, random) {
			n.progress.remark("%s killed", n.clients[victim].name)
			if err := n.clients[victim].kill(); err != nil {
				fail(err)
				return
			}
		}
	}
}
