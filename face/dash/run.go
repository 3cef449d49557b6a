package dash

import (
	"context"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/psyche-go/psyche/base/identity"
	"github.com/psyche-go/psyche/core/coordinator"
	"github.com/psyche-go/psyche/face/dash/follow"
	"github.com/psyche-go/psyche/face/dash/history"
	"github.com/psyche-go/psyche/face/dash/reported"
	"github.com/psyche-go/psyche/face/dash/samples"
	"github.com/psyche-go/psyche/face/dash/shown"
	"github.com/psyche-go/psyche/face/dash/talk"
	"github.com/psyche-go/psyche/host/server/status"
	"github.com/psyche-go/psyche/learn/memory"
	"github.com/psyche-go/psyche/record/config"
	"github.com/psyche-go/psyche/record/invite"
)

// maxPoints limits the points of a curve of members' reports.
const maxPoints = 600

// word matches names without special characters for a shell.
var word = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$`)

// Run is a run on the dashboard.
type Run struct {
	Key    string // unique identifier in addresses of the page
	Source string // description of the run's source
	Log    *follow.Log
	// State returns the newest state. The page uses it while the run has no log, or the log has no
	// state yet. State may be nil, and may return nil.
	State    func() *coordinator.State
	Reported *reported.Board // members' reports; may be nil
	Join     Join
	Talk     *talk.Model   // model for the chat after the run; may be nil
	Samples  *samples.File // texts of the run's models; may be nil
}

// Join describes how to join a run. The zero value means unknown.
type Join struct {
	Server string            // address of the run's server, host:port; HostPlaceholder may stand for the host
	Flags  []string          // flags for a run on a chain
	Chain  *invite.ChainLink // invite link to a run on a chain, if it contains only public nodes; nil: use Flags

	Parameters uint64 // of the run's model; 0: not known
	Install    string // command line that installs psyche-client; empty: not known
}

// HostPlaceholder stands in Join.Server for the host name under which the browser reached the page.
const HostPlaceholder = "@@HOST@@"

// shownRun is the page's data for one run.
type shownRun struct {
	shown.Run
	Key      string          `json:"key"`
	Source   string          `json:"source"`
	Problem  string          `json:"problem,omitempty"`
	Log      *follow.Extent  `json:"log,omitempty"`     // of the shown data; nil if readers cannot download it
	Reading  *follow.Reading `json:"reading,omitempty"` // of a log that is not shown yet
	Reported *reported.Shown `json:"reported"`
	Join     string          `json:"join"`
	JoinNote string          `json:"join_note,omitempty"`
	Install  string          `json:"join_install,omitempty"` // command that installs psyche-client
	Link     bool            `json:"join_link"`              // the command contains a link, for which there is a QR code
	Use      string          `json:"use_link,omitempty"`     // of a finished run: link with which programs get its model
	Needs    *memory.Bytes   `json:"join_needs,omitempty"`

	Talk    *talk.Offer      `json:"talk,omitempty"`    // of a finished run: the page's chat with its model
	Samples *samples.Samples `json:"samples,omitempty"` // texts that the host reports
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

// show returns everything about a run. Its curves contain only the newest rounds, at most last; 0 means
// all.
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
		if told.Join != "" {
			told.Install = r.Join.Install
		}
		told.Needs = r.needs(state)
		if state.RunState == coordinator.Finished && word.MatchString(state.RunID) {
			told.Use = r.link(state, view.Run)
		}
		told.Talk, told.Samples = r.product(state)
	}
	if r.Reported != nil {
		reports := r.Reported.Show(maxPoints)
		told.Reported = &reports
	}
	return told
}

// product returns the chat with the model of a finished run, and its samples.
func (r *Run) product(s *coordinator.State) (offer *talk.Offer, texts *samples.Samples) {
	if s.RunState != coordinator.Finished {
		return nil, nil
	}
	if r.Talk != nil {
		offer = r.Talk.Offer(context.Background(), s.RunID)
	}
	if r.Samples != nil {
		texts = r.Samples.Of(s.RunID)
	}
	return offer, texts
}

// needs returns the resources that a member's machine needs, or nil if they are unknown or the run
// is finished.
func (r *Run) needs(s *coordinator.State) *memory.Bytes {
	model, err := config.DecodeModel(s.Model.Definition)
	if err != nil || r.Join.Parameters == 0 || s.RunState == coordinator.Finished {
		return nil
	}
	needs := memory.Training{
		Model: memory.Model{Parameters: r.Join.Parameters}, Optimizer: model.Optimizer, Audited: s.Config.VerificationPercent > 0, Keep: memory.Kept,
	}.Needs().Bytes
	return &needs
}

// link returns the invite link of a run, with HostPlaceholder for the host of a server; "" if there
// is none.
func (r *Run) link(s *coordinator.State, run [32]byte) string {
	if r.Join.Chain != nil {
		return r.Join.Chain.String()
	}
	if r.Join.Server == "" || run == [32]byte{} {
		return ""
	}
	return fmt.Sprintf("%s://%s/%s?key=%s&genesis=%x", invite.Scheme, r.Join.Server, s.RunID, identity.ID(s.Host), run)
}

// joinCommand returns a command to copy, or a note why there is none. run is the run's hash, or
// zero if unknown.
func (r *Run) joinCommand(s *coordinator.State, run [32]byte) (command, note string) {
	switch {
	case s.RunState == coordinator.Finished:
		return "", "The run is over."
	case r.Join.Server == "" && len(r.Join.Flags) == 0 && r.Join.Chain == nil:
		return "", "This page shows a copy of the run's log. Ask the run's host how to join."
	case !word.MatchString(s.RunID):
		return "", "The run's name contains special characters of the shell. Quote the name and type the command manually."
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
		note = "You need a copy of the folder with the run's initial model. "
	}
	if model, err := config.DecodeModel(s.Model.Definition); err == nil && slices.ContainsFunc(model.DataLocations, func(l config.DataLocation) bool { return l.Folder() != "" }) {
		parts = append(parts, "--data-path DATA")
		note += "You need a copy of the folder with the run's data. "
	}
	if s.Authority.Permissioned {
		if !linked {
			parts = append(parts, "--identity-secret-key-path KEY.json")
		}
		note += fmt.Sprintf("Only keys that the join authority %s has authorized may join. A client prints its key when it starts. ", status.Of(s, [32]byte{}).Authority.Join)
	}
	if !linked {
		parts = append(parts, "--checkpoint-dir checkpoints")
	}
	if r.Join.Server == "" {
		note += "The member's key pays fees on the chain. Send SOL to the key first. If its balance is too low, the client reports the required amount. "
	}
	return strings.Join(parts, " \\\n  "), strings.TrimSpace(note)
}
