package dash

import (
	"encoding/json"
	"fmt"
	"net/url"
	"regexp"
	"slices"
	"strings"

	"github.com/psyche-go/psyche/core/coordinator"
	"github.com/psyche-go/psyche/face/dash/follow"
	"github.com/psyche-go/psyche/face/dash/history"
	"github.com/psyche-go/psyche/face/dash/reported"
	"github.com/psyche-go/psyche/host/server/status"
	"github.com/psyche-go/psyche/record/config"
)

// Bounds of an answer.
const (
	maxPoints = 600 // of a curve
	maxEvents = 200 // of what happened, at a time
	maxTrials = 100 // that are over
)

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

// Join says how to take part.
type Join struct {
	Flags []string // that lead to the run's host; HostPlaceholder stands for the page's own host
}

// HostPlaceholder stands, in Join.Flags, for the host that the browser found the page at.
const HostPlaceholder = "@@HOST@@"

// shownRun is what the page is told of a run.
type shownRun struct {
	Key       string          `json:"key"`
	Source    string          `json:"source"`
	Problem   string          `json:"problem,omitempty"`
	Status    *status.Run     `json:"status"`
	Model     json.RawMessage `json:"model,omitempty"` // its definition
	SeqLen    uint32          `json:"sequence_tokens"`
	History   *shownHistory   `json:"history"`
	Reported  *reported.Shown `json:"reported"`
	Costs     *follow.Costs   `json:"costs,omitempty"`
	Join      string          `json:"join"`
	JoinNote  string          `json:"join_note,omitempty"`
	Locations []location      `json:"locations"` // of checkpoints, newest first
}

// shownHistory is a history.History with its curves thinned out.
type shownHistory struct {
	Entries     uint64               `json:"entries"`
	Began       uint64               `json:"began"`
	Now         uint64               `json:"now"`
	Spent       history.Spent        `json:"spent"`
	Tokens      uint64               `json:"tokens"`
	Rounds      []history.Stretch    `json:"rounds"`
	Phases      []history.Phase      `json:"phases"`
	Members     []history.Member     `json:"members"`
	Events      []history.Event      `json:"events"` // newest first
	More        int                  `json:"more"`   // events that are older
	Forgotten   uint64               `json:"forgotten"`
	Checkpoints []history.Checkpoint `json:"checkpoints"` // newest first
	Open        []history.Trial      `json:"open_trials"` // in order of accusation
	Trials      []history.Trial      `json:"past_trials"` // newest first
}

// location is where a checkpoint lies.
type location struct {
	Step     uint32 `json:"step"`
	Kind     string `json:"kind"`
	Place    string `json:"place"`
	Link     string `json:"link,omitempty"`
	Reporter string `json:"reporter,omitempty"` // who says so; empty: the run's configuration
	Entry    uint64 `json:"entry,omitempty"`
	Digest   string `json:"digest,omitempty"`
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

// show returns everything about a run. Rounds before the given step are left out.
func (r *Run) show(from uint32) shownRun {
	state, view := r.state()
	shown := shownRun{Key: r.Key, Source: r.Source, Problem: view.Problem, Costs: view.Costs, Locations: []location{}}
	if state != nil {
		run := status.Of(state, view.Run)
		shown.Status, shown.SeqLen = &run, state.Model.MaxSeqLen
		if model, err := config.DecodeModel(state.Model.Definition); err == nil {
			shown.Model, _ = json.Marshal(model) // it was JSON a moment ago
		}
		shown.Join, shown.JoinNote = r.joinCommand(state)
	}
	if r.Log != nil {
		r.Log.History(func(h *history.History) {
			if h.Seen > 0 {
				shown.History = showHistory(h, from)
				shown.Locations = uploadsOf(h)
			}
		})
	}
	if state != nil {
		shown.Locations = append(shown.Locations, originOf(state)...)
	}
	if r.Reported != nil {
		reports := r.Reported.Show(maxPoints)
		shown.Reported = &reports
	}
	return shown
}

func showHistory(h *history.History, from uint32) *shownHistory {
	shown := &shownHistory{
		Entries: h.Seen, Began: h.Began, Now: h.Now, Spent: h.Spent, Tokens: h.Tokens, Rounds: h.Rounds.At(from, 0, maxPoints),
		Phases: append([]history.Phase{}, h.Phases...), Members: make([]history.Member, 0, len(h.Members)),
		More: max(0, len(h.Events)-maxEvents), Forgotten: h.Dropped, Checkpoints: append([]history.Checkpoint{}, h.Checkpoints...),
		Open: append([]history.Trial{}, h.Open...), Trials: append([]history.Trial{}, h.Trials[max(0, len(h.Trials)-maxTrials):]...),
	}
	for _, m := range h.Members {
		shown.Members = append(shown.Members, *m)
	}
	slices.SortFunc(shown.Members, func(a, b history.Member) int { return strings.Compare(a.ID, b.ID) })
	shown.Events = newest(h.Events, len(h.Events))
	slices.Reverse(shown.Checkpoints)
	slices.Reverse(shown.Trials)
	return shown
}

// newest returns the newest of the first n events, newest first.
func newest(all []history.Event, n int) []history.Event {
	n = min(max(n, 0), len(all))
	page := slices.Clone(all[max(0, n-maxEvents):n])
	slices.Reverse(page)
	if page == nil {
		page = []history.Event{}
	}
	return page
}

// uploadsOf lists where members say that checkpoints lie.
func uploadsOf(h *history.History) []location {
	list := []location{}
	for _, u := range slices.Backward(h.Uploads) {
		list = append(list, location{
			Step: u.Step, Kind: u.Kind, Place: strings.TrimSpace(u.Repo + " " + u.Revision), Link: link(u.Kind, u.Repo, u.Revision),
			Reporter: u.Reporter, Entry: u.Entry, Digest: u.Digest,
		})
	}
	return list
}

// originOf is the place that the run's configuration names.
func originOf(s *coordinator.State) []location {
	c := s.Model.Checkpoint
	kind := c.Kind
	if c.Origin != 0 {
		kind = c.Origin
	}
	if c.Repo == "" {
		return nil
	}
	return []location{{Kind: kind.String(), Place: strings.TrimSpace(c.Repo + " " + c.Revision), Link: link(kind.String(), c.Repo, c.Revision)}}
}

var (
	hubRepo = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]{0,95}/[A-Za-z0-9][A-Za-z0-9._-]{0,95}$`)
	plain   = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._/-]{0,191}$`)
	word    = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$`)
)

// link returns where a browser finds a checkpoint, if its place is one that has such an address.
func link(kind, repo, revision string) string {
	switch {
	case kind == coordinator.CheckpointHub.String() && hubRepo.MatchString(repo):
		address := "https://huggingface.co/" + repo
		if word.MatchString(revision) {
			address += "/tree/" + revision
		}
		return address
	case kind == coordinator.CheckpointGcs.String() && word.MatchString(repo):
		address := "https://console.cloud.google.com/storage/browser/" + repo
		if plain.MatchString(revision) && !strings.Contains(revision, "..") {
			address += "/" + (&url.URL{Path: revision}).EscapedPath()
		}
		return address
	default:
		return ""
	}
}

// joinCommand returns a command to copy, or a note why there is none.
func (r *Run) joinCommand(s *coordinator.State) (command, note string) {
	if s.RunState == coordinator.Finished {
		return "", "The run is over."
	}
	if len(r.Join.Flags) == 0 {
		return "", "This page shows a copy of the run's log: its host knows how to join."
	}
	if !word.MatchString(s.RunID) {
		return "", "The run's name has characters that a shell may take for something else: type the command by hand."
	}
	parts := append([]string{"psyche-client train --run-id " + s.RunID}, r.Join.Flags...)
	if s.Model.Checkpoint.Kind == coordinator.CheckpointLocal || s.Model.Checkpoint.Origin == coordinator.CheckpointLocal {
		parts = append(parts, "--model-path MODEL")
		note = "The run begins with a folder that you have to have. "
	}
	if model, err := config.DecodeModel(s.Model.Definition); err == nil && slices.ContainsFunc(model.DataLocations, func(l config.DataLocation) bool { return l.Local != nil }) {
		parts = append(parts, "--data-path DATA")
		note += "The data lies in a folder that you have to have. "
	}
	if s.Authority.Permissioned {
		parts = append(parts, "--identity-secret-key-path KEY.json")
		note += fmt.Sprintf("Only keys that the join authority %s has authorized may join. ", status.Of(s, [32]byte{}).Authority.Join)
	}
	parts = append(parts, "--checkpoint-dir checkpoints")
	return strings.Join(parts, " \\\n  "), strings.TrimSpace(note)
}
