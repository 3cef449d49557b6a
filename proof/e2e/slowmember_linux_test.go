package e2e

import (
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/psyche-go/psyche/base/identity"
	"github.com/psyche-go/psyche/core/coordinator"
	"github.com/psyche-go/psyche/host/server"
	"github.com/psyche-go/psyche/proof/e2e/netlab"
	"github.com/psyche-go/psyche/record/event"
	"github.com/psyche-go/psyche/record/follow"
)

// The runs of TestSlowMember.
const (
	slowMembers = 16
	slowAudits  = 30 // verification_percent
	slowBatch   = 24 // sequences of a round
	slowEpoch   = 25 // rounds; a member makes three unconfirmed accusations in an epoch at most
	slowRounds  = 100
	slowLimit   = 10 * time.Minute // of one run; only a hang or a very slow machine reaches it
)

// slowModel has matrices of 96 chunks of 64 by 64 elements. An audit draws 32 of them, so an opening has about 1 MB.
const slowModel = `{
  "architectures": ["LlamaForCausalLM"], "model_type": "llama", "vocab_size": 256,
  "hidden_size": 128, "intermediate_size": 256, "num_hidden_layers": 2, "num_attention_heads": 4,
  "num_key_value_heads": 4, "head_dim": 32, "hidden_act": "silu", "max_position_embeddings": 64,
  "rms_norm_eps": 1e-05, "rope_theta": 10000.0, "tie_word_embeddings": false, "initializer_range": 0.02
}`

// TestSlowMember trains with 16 members and audits. One member sends at 2 Mbit/s, through fair
// queues or through a FIFO queue of one second. In half of the runs, a different member accuses it
// of silence whenever the host accepts an accusation. The slow member is honest: it must keep its
// seat, and no jury may convict it. The test logs the number of its lost batches.
func TestSlowMember(t *testing.T) {
	var table strings.Builder
	for _, queue := range []struct {
		name string
		link netlab.Link
	}{
		{"fair", netlab.Link{Delay: 20 * time.Millisecond, Rate: 2e6, Queue: netlab.Fair}},
		{"FIFO", netlab.Link{Delay: 20 * time.Millisecond, Rate: 2e6, Queue: netlab.FIFO, Buffer: time.Second}},
	} {
		for _, slanderer := range []bool{false, true} {
			name := fmt.Sprintf("%s/slanderer=%v", queue.name, slanderer)
			t.Run(name, func(t *testing.T) {
				r := slowRun(t, queue.link, slanderer)
				fmt.Fprintf(&table, "%s: %v\n", name, r)
				r.check(t)
			})
		}
	}
	t.Logf("\n%s", table.String())
}

// slowRun trains until the run ends, and returns the record of the slow member.
func slowRun(t *testing.T, link netlab.Link, slanderer bool) *slowRecord {
	lab := newInternet(t)
	n := slowNetwork(t)
	fast := netlab.Link{Delay: 20 * time.Millisecond, Rate: 50e6}
	n.startServerOn(host(t, lab.Add, fast))
	slow, line := n.newClient("slow"), host(t, lab.Add, link)
	slow.startOn(line)
	r, honest := &slowRecord{id: slow.id}, []*client{slow}
	for i := range slowMembers - 1 {
		if at := host(t, lab.Add, fast); slanderer && i == 0 {
			r.slanderer = startSlanderer(t, n, at, slow)
		} else {
			c := n.newClient(fmt.Sprintf("client-%d", i+1))
			c.startOn(at)
			honest = append(honest, c)
		}
	}
	begin := time.Now()
	for _, c := range honest {
		if code := c.exitCode(t, slowLimit-time.Since(begin)); code != 0 {
			t.Errorf("%s ended with exit code %d", c.name, code)
		}
		noPanic(t, c.name, c.text(t))
	}
	r.traffic = line.Traffic()
	r.readJournal(t, n)
	r.readEvents(honest)
	return r
}

// slowNetwork creates the model and the configuration of a run.
func slowNetwork(t *testing.T) *network {
	t.Helper()
	n := newNetwork(t, rules{clients: slowMembers, minClients: 2, roundsPerEpoch: slowEpoch, steps: slowRounds})
	config, model := filepath.Join(n.dir, "slow.json"), filepath.Join(n.dir, "slow-model")
	writeFile(t, config, []byte(slowModel))
	must(t, clientBinary, "init-model", "--config", config, "--seed", "1", "--output", model)
	n.change(fmt.Sprintf("path = %q", n.model), fmt.Sprintf("path = %q", model))
	n.change("compression_chunk = 32", "compression_chunk = 64")
	n.change("verification_percent = 0", fmt.Sprintf("verification_percent = %d", slowAudits))
	n.change("global_batch_size_start = 6", fmt.Sprintf("global_batch_size_start = %d", slowBatch))
	n.change("global_batch_size_end = 6", fmt.Sprintf("global_batch_size_end = %d", slowBatch))
	return n
}

// startSlanderer starts a member that trains honestly and accuses the victim of silence. It returns the key of the member.
func startSlanderer(t *testing.T, n *network, at *netlab.Host, victim *client) string {
	t.Helper()
	c := n.newClient("slanderer")
	c.wrap = at.Wrap
	c.startAltered("cheat/cheater", "-listen", at.Address().String(), "-victim", victim.id, "-only-silence")
	return c.id
}

// slowRecord counts the events of a run that concern one member.
type slowRecord struct {
	id        string
	slanderer string // empty: none
	traffic   netlab.Traffic

	// From the journal.
	rounds, seated            int            // rounds; rounds that began with it as a healthy member
	assigned                  int            // batches
	late, reports             int            // late marks; health checks that name it
	accusers                  map[string]int // accusations of it
	guilty, innocent, returns int
	states                    map[string]int // rounds that began without it, by its state
	ejected                   []string       // reasons
	first, last               uint64         // Unix time in milliseconds of the first and the last round

	// From event logs.
	lost     int            // batches without a counted result
	losers   map[string]int // the same of all members
	audits   map[string]int // of its results by outcome
	reasons  map[string]int // details of audits and votes of honest members against it
	openings []int          // sizes, of all members
}

// readJournal replays the journal.
func (r *slowRecord) readJournal(t *testing.T, n *network) {
	t.Helper()
	id, err := identity.ParseID(r.id)
	if err != nil {
		t.Fatal(err)
	}
	who, step, lateness := coordinator.ClientID(id), uint32(0), coordinator.OnTime
	r.states, r.accusers = make(map[string]int), make(map[string]int)
	final, _, err := server.Replay(server.JournalPath(n.saved, "e2e"), func(record follow.Record, s *coordinator.State) error {
		r.addAction(record, who)
		member, ok := s.Member(who)
		if ok {
			if lateness == coordinator.OnTime && member.Lateness != coordinator.OnTime {
				r.late++
			}
			lateness, r.returns = member.Lateness, max(r.returns, int(member.Returns))
		}
		if round := s.CurrentRound(); round != nil && s.RunState == coordinator.RoundTrain && round.Step != step {
			step = round.Step
			r.addRound(s, round, who, member)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range final.State.Authority.Ejections {
		if e.Client == who {
			r.ejected = append(r.ejected, e.Reason.String())
		}
	}
	if final.State.RunState != coordinator.Finished {
		t.Errorf("the journal ends in %v", final.State.RunState)
	}
}

// addAction counts accusations of the member, votes about it, and health checks that name it.
func (r *slowRecord) addAction(record follow.Record, who coordinator.ClientID) {
	switch a := record.Action.Action.(type) {
	case coordinator.Accuse:
		if a.Client == who {
			r.accusers[record.Action.From.String()]++
		}
	case coordinator.Vote:
		if a.Client == who && a.Guilty {
			r.guilty++
		} else if a.Client == who {
			r.innocent++
		}
	case coordinator.HealthCheck:
		if slices.Contains(a.Clients, who) {
			r.reports++
		}
	}
}

// addRound counts a round that begins. member is nil if the member has no entry in the epoch.
func (r *slowRecord) addRound(s *coordinator.State, round *coordinator.Round, who coordinator.ClientID, member *coordinator.Client) {
	if r.rounds++; r.first == 0 {
		r.first = s.StateStart
	}
	r.last = s.StateStart
	i, seated := round.MemberIndex(who)
	if !seated {
		state := "not in the epoch"
		if member != nil {
			state = member.State.String()
		}
		r.states[state]++
		return
	}
	r.seated++
	for _, a := range round.Assignments(s.Config) {
		if a.Member == i {
			r.assigned++
		}
	}
}

// readEvents reads the event logs of honest members.
func (r *slowRecord) readEvents(honest []*client) {
	r.audits, r.reasons, r.losers = make(map[string]int), make(map[string]int), make(map[string]int)
	lost := make(map[event.Batch]string)
	for _, c := range honest {
		for _, e := range c.events() {
			switch body := e.Body.(type) {
			case event.Applied:
				for _, l := range body.Lost {
					lost[l.Batch] = l.Owner
				}
			case event.Opened:
				r.openings = append(r.openings, body.Bytes)
			case event.Audit:
				if body.Trainer == r.id && c.id != r.id {
					r.audits[body.Outcome]++
					if body.Outcome == "silent" || body.Outcome == "faulty" {
						r.reasons[fmt.Sprintf("%s audits %+v", c.id, body)]++
					}
				}
			case event.Voted:
				if body.Accused == r.id && body.Guilty {
					r.reasons[body.Detail]++
				}
			}
		}
	}
	for _, owner := range lost {
		r.losers[owner]++
	}
	r.lost = r.losers[r.id]
	slices.Sort(r.openings)
}

// String returns one row of the report.
func (r *slowRecord) String() string {
	openings := "none"
	if k := len(r.openings); k > 0 {
		openings = fmt.Sprintf("%d of %d to %d bytes", k, r.openings[0], r.openings[k-1])
	}
	return fmt.Sprintf("%d of %d batches lost, %d of the slanderer, %d of all members; seated in %d of %d rounds of %.1f s %v; %d late marks, %d health checks, %d returns; "+
		"%d accusations by the slanderer, %d by honest members, %d votes guilty, %d innocent, ejected %v; audits of it %v; openings: %s; its link carried %.1f MB, %d packets lost%s",
		r.lost, r.assigned, r.losers[r.slanderer], sum(r.losers), r.seated, r.rounds, float64(r.last-r.first)/1000/float64(max(r.rounds-1, 1)), r.states, r.late, r.reports, r.returns,
		r.accusers[r.slanderer], sum(r.accusers)-r.accusers[r.slanderer], r.guilty, r.innocent, r.ejected, r.audits, openings, float64(r.traffic.Bytes)/1e6, r.traffic.Lost, r.details())
}

// details lists the reasons of honest members against it, one per line.
func (r *slowRecord) details() string {
	var text strings.Builder
	for _, reason := range slices.Sorted(maps.Keys(r.reasons)) {
		fmt.Fprintf(&text, "\n\t%s (%d times)", reason, r.reasons[reason])
	}
	return text.String()
}

func sum(counts map[string]int) (total int) {
	for _, count := range counts {
		total += count
	}
	return total
}

// check checks that the slow member kept its seat.
func (r *slowRecord) check(t *testing.T) {
	t.Helper()
	if r.rounds == 0 || r.seated < r.rounds {
		t.Errorf("the slow member has a seat in %d of %d rounds: %v", r.seated, r.rounds, r.states)
	}
	if len(r.ejected) > 0 {
		t.Errorf("the slow member is ejected: %v", r.ejected)
	}
}
