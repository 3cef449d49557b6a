package shown

import (
	"encoding/json"
	"net/url"
	"regexp"
	"slices"
	"strings"

	"github.com/psyche-go/psyche/core/coordinator"
	"github.com/psyche-go/psyche/face/dash/history"
	"github.com/psyche-go/psyche/host/server/status"
	"github.com/psyche-go/psyche/record/config"
)

// Limits of a description.
const (
	maxPoints = 600 // of a curve
	maxEvents = 200 // events at a time
	maxTrials = 100 // closed trials
	maxMarks  = 100 // events that charts mark
)

// Run describes a run, as computed from its log.
type Run struct {
	Status    *status.Run     `json:"status"`
	Model     json.RawMessage `json:"model,omitempty"` // its definition
	SeqLen    uint32          `json:"sequence_tokens"`
	History   *History        `json:"history"`
	Locations []Location      `json:"locations"`       // of checkpoints, newest first
	Costs     *history.Costs  `json:"costs,omitempty"` // of a run on a chain
}

// Of describes a run. run is the hash of its genesis, or zero for a run on a chain. state and h may be
// nil. The curves contain only the newest rounds, at most last; 0 means all.
func Of(state *coordinator.State, run [32]byte, h *history.History, last uint32) Run {
	shown := Run{Locations: []Location{}}
	from := uint32(0)
	if state != nil {
		described := status.Of(state, run)
		shown.Status, shown.SeqLen = &described, state.Model.MaxSeqLen
		if model, err := config.DecodeModel(state.Model.Definition); err == nil {
			shown.Model, _ = json.Marshal(model) // cannot fail: it was just decoded from JSON
		}
		if last > 0 && state.Progress.Step > last {
			from = state.Progress.Step - last
		}
	}
	if h != nil && h.Seen > 0 {
		if shown.Status != nil {
			for _, m := range h.Members {
				shown.Status.Call(m.ID, m.Name)
			}
		}
		shown.History = of(h, from)
		shown.Locations = uploadsOf(h)
	}
	if state != nil {
		shown.Locations = append(shown.Locations, originOf(state)...)
	}
	return shown
}

// Events returns one page of events, newest first. The page contains the newest events whose index in
// the history is below before. more is the number of events that are older than the page. A caller
// passes it as before to get the next page.
func Events(h *history.History, before int) (events []history.Event, more int) {
	return newest(h.Events, min(before, history.MaxEvents)), max(0, before-maxEvents)
}

// History is a history.History with fewer points per curve.
type History struct {
	Entries     uint64               `json:"entries"`
	Began       uint64               `json:"began"`
	Now         uint64               `json:"now"`
	Spent       history.Spent        `json:"spent"`
	Tokens      uint64               `json:"tokens"`
	Rounds      []history.Stretch    `json:"rounds"`
	Phases      []history.Phase      `json:"phases"`
	Members     []history.Member     `json:"members"`
	Events      []history.Event      `json:"events"` // newest first
	Marks       []history.Event      `json:"marks"`  // ejections, drops and pauses, oldest first
	More        int                  `json:"more"`   // number of older events
	Forgotten   uint64               `json:"forgotten"`
	Checkpoints []history.Checkpoint `json:"checkpoints"` // newest first
	Open        []history.Trial      `json:"open_trials"` // in order of accusation
	Trials      []history.Trial      `json:"past_trials"` // newest first
}

// Location is the location of a checkpoint.
type Location struct {
	Step     uint32 `json:"step"`
	Kind     string `json:"kind"`
	Place    string `json:"place"`
	Link     string `json:"link,omitempty"`
	Reporter string `json:"reporter,omitempty"` // member that reported it; empty: the run's configuration
	Entry    uint64 `json:"entry,omitempty"`
	Digest   string `json:"digest,omitempty"`
}

func of(h *history.History, from uint32) *History {
	shown := &History{
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
	shown.Marks = h.Marks(from, maxMarks)
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

// uploadsOf lists the checkpoint locations that members reported.
func uploadsOf(h *history.History) []Location {
	list := []Location{}
	for _, u := range slices.Backward(h.Uploads) {
		list = append(list, Location{
			Step: u.Step, Kind: u.Kind, Place: strings.TrimSpace(u.Repo + " " + u.Revision), Link: link(u.Kind, u.Repo, u.Revision),
			Reporter: u.Reporter, Entry: u.Entry, Digest: u.Digest,
		})
	}
	return list
}

// originOf returns the location in the run's configuration.
func originOf(s *coordinator.State) []Location {
	c := s.Model.Checkpoint
	kind := c.Kind
	if c.Origin != 0 {
		kind = c.Origin
	}
	if c.Repo == "" {
		return nil
	}
	return []Location{{Kind: kind.String(), Place: strings.TrimSpace(c.Repo + " " + c.Revision), Link: link(kind.String(), c.Repo, c.Revision)}}
}

var (
	hubRepo = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]{0,95}/[A-Za-z0-9][A-Za-z0-9._-]{0,95}$`)
	plain   = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._/-]{0,191}$`)
	word    = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$`)
)

// link returns the web address of a checkpoint, or "" if its location has none.
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
