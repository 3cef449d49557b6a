package core

import (
	"slices"
	"time"

	"github.com/psyche-go/psyche/core/coordinator"
)

// Events of a finished run.
type (
	// Over means that the run is finished. The caller repeats it after every other event, before Close.
	Over struct{ Held *Model }

	// Finish follows Over and Close.
	Finish struct {
		Trainer
		Closed    bool     // Close is complete
		Saving    bool     // a model still has to be saved
		Unwritten []uint32 // steps of models that are not on the disk
		Failed    bool     // the newest checkpoint could not be saved, but may be tried again
		Err       error    // reason why the newest checkpoint is not saved
		Connected map[coordinator.ClientID]bool
	}
)

// Reports about a finished run.
type (
	// AsksForFinal means that the client asks members for the final model.
	AsksForFinal struct{ Limit time.Duration }

	// DiskSlow means that the last checkpoint is not on the disk yet.
	DiskSlow struct{ Unwritten []uint32 }

	// DiskFull means that the client waits for room on the disk.
	DiskFull struct {
		Limit time.Duration
		Err   error
	}

	// Lingers means that the client stays for clients that may need the final model.
	Lingers struct {
		Members, Waiting int // members of the last epoch, and clients that never were members
		Limit            time.Duration
	}
)

func (Over) event()   {}
func (Finish) event() {}

func (AsksForFinal) report() {}
func (DiskSlow) report()     {}
func (DiskFull) report()     {}
func (Lingers) report()      {}

// slowShutdown is the time after the end of the run when the client reports that it waits for the
// disk.
const slowShutdown = 10 * time.Second

// shortestStay is the minimum time for which a client stays connected if it came back for the final
// model. Members wait for such a client until they have seen it, and a busy member may miss a client
// that connects only briefly.
const shortestStay = time.Second

// finish is the client's work after the end of the run. If it was disconnected in the last epoch, it
// gets the final model. If it holds the final model, it stays for a while to serve it.
type finish struct {
	since time.Time                     // when the client saw that the run is finished
	said  bool                          // the client has reported how the run ended
	slow  bool                          // the client has reported that it waits for the disk
	full  bool                          // the client has reported that it waits for room on the disk
	late  bool                          // the run was over before this client came, and the client holds nothing of it
	back  map[coordinator.ClientID]bool // clients that have returned since then
}

// begin determines whether the client comes too late.
func (f *finish) begin(c *common, known bool) {
	f.late = c.state.RunState == coordinator.Finished && !known && c.Holdings.Newest(c.state).Step == 0
}

// over begins the end of the client.
func (f *finish) over(c *common, e Over) {
	if f.since.IsZero() {
		f.since, f.back = c.now, make(map[coordinator.ClientID]bool)
		if held := finalOf(e.Held, c.state); held == ModelNone && f.obtains(c) && !f.late && c.Holdings.Newest(c.state).Step == 0 {
			c.report(AsksForFinal{c.FinalWait})
		}
	}
	if f.late {
		f.end(c, ModelNone)
		c.ready.End = true
		return
	}
	if f.passed(c, c.FinalWait+c.modelSyncTime()) {
		c.Jobs.cancelLoad(coordinator.Checkpoint{})
	}
}

// look ends the client when the last checkpoint is saved and no other client needs it.
func (f *finish) look(c *common, l *loading, e Finish) {
	if !e.Closed || e.Saving || !c.Jobs.Idle() {
		if len(e.Unwritten) > 0 && !f.slow && f.passed(c, slowShutdown) {
			f.slow = true
			c.report(DiskSlow{e.Unwritten})
		}
		return
	}
	held := finalOf(e.Held, c.state)
	if (held == ModelOld || held == ModelNone) && f.obtains(c) {
		l.load(c, e.Trainer)
		return
	}
	if !f.said && f.awaitsRoom(c, e) {
		return
	}
	lingers := f.lingers(c, held, e.Connected)
	if !f.said {
		f.end(c, held)
		if held == ModelOther || e.Err != nil {
			return // the client ends with an error
		}
		if lingers && reported(c.state, c.ID) {
			away, here := f.awaited(c, e.Connected)
			c.report(Lingers{away + here, joiners(c, e.Connected), c.FinalWait})
		}
	}
	c.ready.End = !lingers
}

// end reports how the run ended.
func (f *finish) end(c *common, held FinalModel) {
	f.said = true
	c.ready.Ended = &held
}

// passed reports whether the client has waited longer than wait.
func (f *finish) passed(c *common, wait time.Duration) bool { return c.now.Sub(f.since) > wait }

// obtains reports whether to get the final model of a finished run from any holder, and to wait for it.
// A run that was closed early has no final model.
func (f *finish) obtains(c *common) bool {
	return c.state.Model.Checkpoint.FromPeers() && !ClosedEarly(c.state) && !f.passed(c, c.FinalWait)
}

// awaitsRoom reports whether the client waits for room on the disk, because its last checkpoint could
// not be saved. Without the wait, the user could not keep the final model by removing other files.
func (f *finish) awaitsRoom(c *common, e Finish) bool {
	if c.Leave.Begun() || f.passed(c, c.FinalWait) || !e.Failed {
		return false
	}
	c.ready.Hasten = true
	if !f.full {
		f.full = true
		c.report(DiskFull{c.FinalWait, e.Err})
	}
	return true
}

// lingers reports whether this client stays for clients that need the final model. If this client was
// disconnected itself at the end of the run, it relies on other clients to serve the model.
func (f *finish) lingers(c *common, held FinalModel, connected map[coordinator.ClientID]bool) bool {
	if c.FinalWait < 0 || held != ModelRecorded || !c.state.Model.Checkpoint.FromPeers() || ClosedEarly(c.state) {
		return false
	}
	if !reported(c.state, c.ID) {
		return !f.passed(c, min(c.FinalWait, shortestStay))
	}
	away, here := f.awaited(c, connected)
	return away+joiners(c, connected) > 0 && !f.passed(c, c.FinalWait) || here > 0 && !f.passed(c, c.FinalWait+c.modelSyncTime())
}

// awaited returns how many disconnected clients may still come for the final model (away), and how
// many connected clients may be getting it (here). It counts clients of the last epoch that did not
// report the final model, or that joined again after their report, as a restarted client does. A
// client that came back and has disconnected again does not count. Ejected clients do not count
// either, because they could keep all other clients from ending.
func (f *finish) awaited(c *common, connected map[coordinator.ClientID]bool) (away, here int) {
	recorded := c.state.Model.Checkpoint
	has := make(map[coordinator.ClientID]bool)
	for _, reporter := range c.state.Reporters(recorded.Step) {
		has[reporter.ID] = reporter.Report.Digest == recorded.Digest
	}
	for i := range c.state.Pending {
		has[c.state.Pending[i].ID] = false
	}
	has[c.ID] = true
	for _, clients := range [][]coordinator.Client{c.state.Epoch.Clients, c.state.Epoch.Exited} {
		for i := range clients {
			switch id := clients[i].ID; {
			case has[id], clients[i].State == coordinator.Ejected:
			case connected[id]:
				f.back[id] = true
				here++
			case !f.back[id]:
				away++
			}
		}
	}
	return away, here
}

// joiners returns the number of clients that never became members, and that may be getting the final
// model: they waited for the next epoch when the run ended. Some networks never report that such a
// client has disconnected.
func joiners(c *common, connected map[coordinator.ClientID]bool) (here int) {
	for i := range c.state.Pending {
		id := c.state.Pending[i].ID
		member := find(c.state.Epoch.Clients, id) != nil || find(c.state.Epoch.Exited, id) != nil
		if !member && id != c.ID && connected[id] {
			here++
		}
	}
	return here
}

// reported reports whether a client reported the run's recorded model.
func reported(s *coordinator.State, id coordinator.ClientID) bool {
	c := s.Model.Checkpoint
	return slices.ContainsFunc(s.Reporters(c.Step), func(r coordinator.Client) bool { return r.ID == id && r.Report.Digest == c.Digest })
}

// ClosedEarly reports whether the authority closed the run before its last step.
func ClosedEarly(s *coordinator.State) bool {
	return s.Closed && s.Progress.Step <= s.Config.TotalSteps
}

// finalOf compares this client's model with a finished run. The final model is the model of the last
// round, which includes every counted result. If too few members were left to report it, the run
// recorded only an earlier model, but the model of the last round is still the final one.
func finalOf(held *Model, s *coordinator.State) FinalModel {
	c, last := s.Model.Checkpoint, s.Progress.Step-1
	seen := s.OriginStep - 1
	if c.FromPeers() {
		seen = c.Step
	}
	switch {
	case held == nil:
		return ModelNone
	case held.Step < last && seen < last && !ClosedEarly(s):
		return ModelOld
	case !c.FromPeers() && held.Origin == c, c.FromPeers() && held.Digest == c.Digest:
		return ModelRecorded
	case c.FromPeers() && c.Step == held.Step, held.Step > last:
		return ModelOther
	case held.Step < last:
		return ModelOld
	}
	return ModelUnrecorded
}
