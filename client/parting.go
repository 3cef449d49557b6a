package client

import (
	"slices"
	"time"

	"github.com/psyche-go/psyche/coordinator"
	"github.com/psyche-go/psyche/identity"
)

// parting is what a client does when the run is finished: who was cut off in the last epoch
// gets the final model, and those that hold it stay for a while to hand it over.
type parting struct {
	since time.Time                     // when it was seen that the run is finished
	said  bool                          // how the run ended for this client
	back  map[coordinator.ClientID]bool // came back since
}

// over reports whether this client has waited long enough.
func (p *parting) over(now time.Time, wait time.Duration) bool { return now.Sub(p.since) > wait }

// handOver is how long getting the final model may take once somebody who has it was found:
// as long as the run gives its members before every epoch.
func (v *view) handOver() time.Duration {
	return time.Duration(v.state.Config.WarmupTime) * time.Millisecond
}

// awaited returns how many clients may yet come for the final model, and how many are here
// and may be getting it: they were in the last epoch, did not report that model, and have
// not come back and gone since. Nobody waits for who was ejected: it could keep all others here.
func (p *parting) awaited(v *view) (away, here int) {
	recorded := v.state.Model.Checkpoint.Digest
	has := make(map[coordinator.ClientID]bool, len(v.state.Epoch.Reports)+1)
	for _, r := range v.state.Epoch.Reports {
		has[r.Client] = r.Digest == recorded
	}
	has[v.myself()] = true
	connected := make(map[identity.ID]bool, len(v.peers))
	for _, peer := range v.peers {
		connected[peer.ID] = true
	}
	for _, clients := range [][]coordinator.Client{v.state.Epoch.Clients, v.state.Epoch.Exited} {
		for i := range clients {
			switch id := clients[i].ID; {
			case has[id], clients[i].State == coordinator.Ejected:
			case connected[identity.ID(id)]:
				p.back[id] = true
				here++
			case !p.back[id]:
				away++
			}
		}
	}
	return away, here
}

// obtainFinal gets the final model of a finished run from whoever holds it, and reports
// whether that is worth waiting for. A run that was closed early has none.
func (n *Node) obtainFinal() bool {
	s := n.run.state
	if !s.Model.Checkpoint.FromPeers() || n.run.closedEarly() || n.seat.parting.over(n.tasks.Now(), n.FinalWait) {
		return false
	}
	n.obtainModel()
	return true
}

// closedEarly reports whether the run was closed by its authority before its last step.
func (v *view) closedEarly() bool {
	return v.state.Closed && v.state.Progress.Step <= v.state.Config.TotalSteps
}

// lingers reports whether this client stays for others that need the final model. Who was
// away itself leaves that to those that it has it from.
func (p *parting) lingers(held finalModel, v *view, now time.Time, wait time.Duration) bool {
	recorded := v.state.Model.Checkpoint
	if wait < 0 || held != modelRecorded || !recorded.FromPeers() || v.closedEarly() || !slices.Contains(v.state.Epoch.Reports,
		coordinator.CheckpointReport{Client: v.myself(), Digest: recorded.Digest}) {
		return false
	}
	away, here := p.awaited(v)
	return away > 0 && !p.over(now, wait) || here > 0 && !p.over(now, wait+v.handOver())
}
