package client

import (
	"slices"
	"time"

	"github.com/psyche-go/psyche/core/coordinator"
	"github.com/psyche-go/psyche/node/modelsync"
)

// afterRun is the client's work after the end of the run. If it was disconnected in the last epoch,
// it gets the final model. If it holds the final model, it stays for a while to serve it.
type afterRun struct {
	since time.Time                     // when the client saw that the run is finished
	said  bool                          // the client has logged how the run ended
	slow  bool                          // the client has logged that it waits for the disk
	full  bool                          // the client has logged that it waits for room on the disk
	late  bool                          // the run was over before this client came, and the client holds nothing of it
	back  map[coordinator.ClientID]bool // clients that have returned since then
}

// over reports whether this client has waited longer than wait.
func (p *afterRun) over(now time.Time, wait time.Duration) bool { return now.Sub(p.since) > wait }

// joiners returns the number of clients that never became members, and that may be getting the final
// model: they waited for the next epoch when the run ended. Some networks never report that such a
// client has disconnected.
func (p *afterRun) joiners(v *view) (here int) {
	s, connected := v.state, v.connected()
	for i := range s.Pending {
		_, member := s.Member(s.Pending[i].ID)
		member = member || slices.ContainsFunc(s.Epoch.Exited, func(c coordinator.Client) bool { return c.ID == s.Pending[i].ID })
		if !member && !v.is(s.Pending[i]) && connected[s.Pending[i].ID] {
			here++
		}
	}
	return here
}

// awaited returns how many disconnected clients may still come for the final model (away), and how
// many connected clients may be getting it (here). It counts clients of the last epoch that did not
// report the final model, or that joined again after their report, as a restarted client does. A
// client that came back and has disconnected again does not count. Ejected clients do not count
// either, because they could keep all other clients from ending.
func (p *afterRun) awaited(v *view) (away, here int) {
	recorded := v.state.Model.Checkpoint.Digest
	has := make(map[coordinator.ClientID]bool)
	for _, c := range v.state.Reporters(v.state.Model.Checkpoint.Step) {
		has[c.ID] = c.Report.Digest == recorded
	}
	for i := range v.state.Pending {
		has[v.state.Pending[i].ID] = false
	}
	has[v.myself()] = true
	connected := v.connected()
	for _, clients := range [][]coordinator.Client{v.state.Epoch.Clients, v.state.Epoch.Exited} {
		for i := range clients {
			switch id := clients[i].ID; {
			case has[id], clients[i].State == coordinator.Ejected:
			case connected[id]:
				p.back[id] = true
				here++
			case !p.back[id]:
				away++
			}
		}
	}
	return away, here
}

// obtains reports whether to get the final model of a finished run from any holder, and to wait for it.
// A run that was closed early has no final model.
func (p *afterRun) obtains(v *view, now time.Time, wait time.Duration) bool {
	return v.state.Model.Checkpoint.FromPeers() && !v.closedEarly() && !p.over(now, wait)
}

// shortestStay is the minimum time for which a client stays connected if it came back for the final
// model. Members wait for such a client until they have seen it, and a busy member may miss a client
// that connects only briefly.
const shortestStay = time.Second

// lingers reports whether this client stays for clients that need the final model. If this client was
// disconnected itself at the end of the run, it relies on other clients to serve the model.
func (p *afterRun) lingers(held finalModel, v *view, now time.Time, wait time.Duration) bool {
	recorded := v.state.Model.Checkpoint
	if wait < 0 || held != modelRecorded || !recorded.FromPeers() || v.closedEarly() {
		return false
	}
	if !v.reported(recorded) {
		return !p.over(now, min(wait, shortestStay))
	}
	away, here := p.awaited(v)
	return away+p.joiners(v) > 0 && !p.over(now, wait) || here > 0 && !p.over(now, wait+v.modelSyncTime())
}

// finalModel is the status of this client's model in a finished run.
type finalModel uint8

const (
	modelRecorded   finalModel = iota // the model that the run recorded
	modelUnrecorded                   // the model of the last round; the run recorded no model of that round
	modelOld                          // a model before the last round
	modelOther                        // a model that is not the run's
	modelNone                         // no model
)

// finalOf compares this client's model with a finished run. The final model is the model of the last
// round, which includes every counted result. If too few members were left to report it, the run
// recorded only an earlier model, but the model of the last round is still the final one.
func finalOf(held *modelsync.Model, v *view) finalModel {
	s := v.state
	c, last := s.Model.Checkpoint, s.Progress.Step-1
	seen := s.OriginStep - 1
	if c.FromPeers() {
		seen = c.Step
	}
	switch {
	case held == nil:
		return modelNone
	case held.Step < last && seen < last && !v.closedEarly():
		return modelOld
	case !c.FromPeers() && held.Origin == c, c.FromPeers() && held.Digest == c.Digest:
		return modelRecorded
	case c.FromPeers() && c.Step == held.Step, held.Step > last:
		return modelOther
	case held.Step < last:
		return modelOld
	}
	return modelUnrecorded
}
