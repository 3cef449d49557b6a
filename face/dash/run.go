package dash

import (
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/psyche-go/psyche/base/identity"
	"github.com/psyche-go/psyche/core/coordinator"
	"github.com/psyche-go/psyche/face/dash/follow"
	"github.com/psyche-go/psyche/face/dash/history"
	"github.com/psyche-go/psyche/face/dash/reported"
	"github.com/psyche-go/psyche/face/dash/shown"
	"github.com/psyche-go/psyche/host/server/status"
	"github.com/psyche-go/psyche/record/config"
	"github.com/psyche-go/psyche/record/invite"
	"github.com/psyche-go/psyche/record/required"
)

// maxPoints bounds a curve of what members report.
const maxPoints = 600

// word is a name that no shell takes for anything else.
var word = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$`)

// Run is a run that is shown.
type Run struct {
	Key    string // names it in addresses of the page; no two have the same
	Source string // where it comes from, for people
	Log    *follow.Log
	// State returns the newest state where there is no log, or none yet. It may be nil, and may
	// return nil.
	State    func() *coordinator.State
	Reported *reported.Board // what members say; may be nil
	Join     Join
}

// Join says how to take part. Zero: nobody knows here.
type Join struct {
	Server string            // address of the run's server, host:port; HostPlaceholder may stand for the host
	Flags  []string          // that lead to a run on a chain
	Chain  *invite.ChainLink // to the run, where it names nodes that anybody may know; nil: the flags say it

	Parameters uint64 // of the run's model; 0: not known
}

// HostPlaceholder stands, in Join.Server, for the host that the browser found the page at.
const HostPlaceholder = "@@HOST@@"

// shownRun is what the page is told of a run.
type shownRun struct {
	shown.Run
	Key      string          `json:"key"`
	Source   string          `json:"source"`
	Problem  string          `json:"problem,omitempty"`
	Log      *follow.Extent  `json:"log,omitempty"`     // of what is shown; nil where nobody can fetch it
	Reading  *follow.Reading `json:"reading,omitempty"` // of a log that is not shown yet
	Reported *reported.Shown `json:"reported"`
	Join     string          `json:"join"`
	JoinNote string          `json:"join_note,omitempty"`
	Link     bool            `json:"join_link"` // the command has a link, of which there is a QR code
	Needs    *required.Bytes `json:"join_needs,omitempty"`
}

// state returns the newest state of a run, or nil.
func (r *Run) state() (*coordinator.State, follow.View) {
	var view follow.View
	if r.Log != nil {
		view = r.Log.View()
	}
	if view.State == nil && r.State != nil {
		return r.State(), view
	}
	return view.State, view
}

// show returns everything about a run. Rounds before the newest last steps are left out; 0: none are.
func (r *Run) show(last uint32) shownRun {
	state, view := r.state()
	told := shownRun{Key: r.Key, Source: r.Source, Problem: view.Problem, Log: view.Log, Reading: view.Reading}
	if r.Log != nil {
		r.Log.History(func(h *history.History) { told.Run = shown.Of(state, view.Run, h, last) })
	} else {
		told.Run = shown.Of(state, view.Run, nil, last)
	}
	told.Costs = view.Costs
	if state != nil {
		told.Join, told.JoinNote = r.joinCommand(state, view.Run)
		told.Link = told.Join != "" && r.link(state, view.Run) != ""
		told.Needs = r.needs(state)
	}
	if r.Reported != nil {
		reports := r.Reported.Show(maxPoints)
		told.Reported = &reports
	}
	return told
}

// needs returns what taking part takes of a machine, or nil where that is not known or the run is over.
func (r *Run) needs(s *coordinator.State) *required.Bytes {
	model, err := config.DecodeModel(s.Model.Definition)
	if err != nil || r.Join.Parameters == 0 || s.RunState == coordinator.Finished {
		return nil
	}
	needs := required.Of(model, s.Config.VerificationPercent > 0, r.Join.Parameters, required.Kept)
	return &needs
}

// link returns the link to a run, on a server with HostPlaceholder in it; empty: there is none.
func (r *Run) link(s *coordinator.State, run [32]byte) string {
	if r.Join.Chain != nil {
		return r.Join.Chain.String()
	}
	if r.Join.Server == "" || run == [32]byte{} {
		return ""
	}
	return fmt.Sprintf("%s://%s/%s?key=%s&genesis=%x", invite.Scheme, r.Join.Server, s.RunID, identity.ID(s.Host), run)
}

// joinCommand returns a command to copy, or a note why there is none. run is the run's hash, zero if it is not known.
func (r *Run) joinCommand(s *coordinator.State, run [32]byte) (command, note string) {
	switch {
	case s.RunState == coordinator.Finished:
		return "", "The run is over."
	case r.Join.Server == "" && len(r.Join.Flags) == 0 && r.Join.Chain == nil:
		return "", "This page shows a copy of the run's log: its host knows how to join."
	case !word.MatchString(s.RunID):
		return "", "The run's name has characters that a shell may interpret: type the command manually."
	}
	var parts []string
	link := r.link(s, run)
	linked := link != ""
	switch {
	case linked:
		parts = []string{"psyche-client join '" + link + "'"}
	case r.Join.Server != "":
		parts = []string{"psyche-client train --run-id " + s.RunID, "--server-addr " + r.Join.Server, "--server-key " + identity.ID(s.Host).String()}
	default:
		parts = append([]string{"psyche-client train --run-id " + s.RunID}, r.Join.Flags...)
	}
	if (!linked || r.Join.Chain != nil) && (s.Model.Checkpoint.Kind == coordinator.CheckpointLocal || s.Model.Checkpoint.Origin == coordinator.CheckpointLocal) {
		parts = append(parts, "--model-path MODEL")
		note = "The run begins with a folder that you have to have. "
	}
	if model, err := config.DecodeModel(s.Model.Definition); err == nil && slices.ContainsFunc(model.DataLocations, func(l config.DataLocation) bool { return l.Local != nil }) {
		parts = append(parts, "--data-path DATA")
		note += "The data lies in a folder that you have to have. "
	}
	if s.Authority.Permissioned {
		if !linked {
			parts = append(parts, "--identity-secret-key-path KEY.json")
		}
		note += fmt.Sprintf("Only keys that the join authority %s has authorized may join; a client says its key when it starts. ", status.Of(s, [32]byte{}).Authority.Join)
	}
	if !linked {
		parts = append(parts, "--checkpoint-dir checkpoints")
	}
	if r.Join.Server == "" {
		note += "The member's key pays fees on the chain. Send SOL to the key first; the client reports how much if its balance is too low. "
	}
	return strings.Join(parts, " \\\n  "), strings.TrimSpace(note)
}
