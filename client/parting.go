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

// awaited returns how many clients may yet come for the final model: they were in the last
// epoch, did not report that model, and have not come back and gone since. A client that is
// one of these waits for nobody: two of them would wait for each other.
func (p *parting) awaited(v *view) (count int) {
	recorded := v.state.Model.Checkpoint.Digest
	has := make(map[coordinator.ClientID]bool, len(v.state.Epoch.Reports)+1)
	for _, r := range v.state.Epoch.Reports {
		has[r.Client] = r.Digest == recorded
	}
	if !has[v.myself()] {
		return 0
	}
	here := make(map[identity.ID]bool, len(v.peers))
	for _, peer := range v.peers {
		here[peer.ID] = true
	}
	for _, clients := range [][]coordinator.Client{v.state.Epoch.Clients, v.state.Epoch.Exited} {
		for i := range clients {
			switch id := clients[i].ID; {
			case has[id]:
			case here[identity.ID(id)]:
				p.back[id] = true
				count++
			case !p.back[id]:
				count++
			}
		}
	}
	return count
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
	if held != modelRecorded || !recorded.FromPeers() || v.closedEarly() || !slices.Contains(v.state.Epoch.Reports,
		coordinator.CheckpointReport{Client: v.myself(), Digest: recorded.Digest}) {
		return false
	}
	return !p.over(now, wait) && p.awaited(v) > 0
}
