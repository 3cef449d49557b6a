package modelsync

import (
	"context"
	"errors"
	"os"
	"slices"
	"testing"

	"github.com/psyche-go/psyche/base/golden"
	"github.com/psyche-go/psyche/base/identity"
	"github.com/psyche-go/psyche/core/coordinator"
	"github.com/psyche-go/psyche/files/checkpoint"
	"github.com/psyche-go/psyche/node/clienttest"
	"github.com/psyche-go/psyche/node/core"
	"github.com/psyche-go/psyche/node/exchange"
	"github.com/psyche-go/psyche/record/event"
)

// TestSourcesFallBack checks that the model comes from the cheapest available source. Sources that
// fail or give a different model are skipped.
func TestSourcesFallBack(t *testing.T) {
	disk := func(c *rig) { c.onDisk(c.after, digestOf(c.after)) }
	results := func(c *rig) { c.inMemory(); c.resultsAt(c.rounds) }
	peers := func(c *rig) { c.modelAt() }
	archive := func(c *rig) { c.archived(c.after) }
	for name, test := range map[string]struct {
		have    []func(c *rig)
		want    string
		fetched bool
	}{
		"everything":                   {[]func(*rig){disk, results, peers, archive}, "disk", false},
		"all but the disk":             {[]func(*rig){results, peers, archive}, "results", true},
		"peers and archive":            {[]func(*rig){peers, archive}, "peers", true},
		"archive":                      {[]func(*rig){archive}, "archive", false},
		"nothing":                      {nil, "", false},
		"another model on the disk":    {[]func(*rig){func(c *rig) { c.onDisk(c.wrong, digestOf(c.wrong)) }, results}, "results", true},
		"a changed model on the disk":  {[]func(*rig){func(c *rig) { c.onDisk(c.wrong, digestOf(c.after)) }, results}, "results", true},
		"an earlier model on the disk": {[]func(*rig){func(c *rig) { c.onDisk(c.before, digestOf(c.before)); c.resultsAt(c.rounds) }, peers}, "results", true},
		"an earlier model that was changed": {[]func(*rig){func(c *rig) {
			s := c.wrong
			s.Step = c.before.Step
			c.onDisk(s, digestOf(c.before))
			c.resultsAt(c.rounds)
		}, peers}, "peers", true},
		"an earlier model and no results": {[]func(*rig){func(c *rig) { c.inMemory() }, peers}, "peers", true},
		"results of too many bytes": {[]func(*rig){func(c *rig) {
			c.inMemory()
			c.rounds[0].Results[0].Size = 2 * bulk
			c.resultsAt(c.rounds)
		}, peers}, "peers", true},
		"a manifest whose parts are gone": {[]func(*rig){func(c *rig) { c.theirs.Cache.PutManifest(digestOf(c.after), c.after.Manifest().Encode()) }, archive}, "archive", false},
		"another manifest":                {[]func(*rig){func(c *rig) { c.theirs.Cache.PutManifest(digestOf(c.after), c.wrong.Manifest().Encode()) }, archive}, "archive", false},
		"other models in archives":        {[]func(*rig){func(c *rig) { c.archived(c.wrong, c.before, c.after) }}, "archive", false},
		"only other models in archives":   {[]func(*rig){func(c *rig) { c.archived(c.wrong, c.before) }}, "", false},
	} {
		t.Run(name, func(t *testing.T) {
			c := newRig(t)
			for _, have := range test.have {
				have(c)
			}
			a, err := c.obtain()
			if a.Model.Source != test.want || (err == nil) != (test.want != "") {
				t.Fatalf("from %q, %v; want it from %q", a.Model.Source, err, test.want)
			}
			if err != nil {
				if !errors.Is(err, ErrNoHolder) || c.models.Held != nil || c.trainer != nil {
					t.Errorf("held %+v after %v", c.models.Held, err)
				}
				return
			}
			c.check(a)
			if (a.Model.Fetched > 0) != test.fetched {
				t.Errorf("%d bytes were fetched", a.Model.Fetched)
			}
			c.checkReported(a, test.want)
			if (len(a.Rounds) > 0) != (test.want == "results") || len(a.Rounds) > 0 && a.Rounds[0].From != digestOf(c.before) {
				t.Errorf("caught up by %+v", a.Rounds)
			}
		})
	}
}

// checkReported checks that the progress of the fetch was reported, from zero to everything.
func (c *rig) checkReported(a *Attempt, source string) {
	c.t.Helper()
	subject, fetched := map[string]string{"peers": event.TransferModel, "results": event.TransferResults}[source]
	if !fetched {
		return
	}
	reports := slices.DeleteFunc(slices.Clone(c.reported), func(x event.Transfer) bool { return x.What != subject })
	if len(reports) < 2 || len(reports) > progressParts+1 || reports[0].Bytes != 0 || reports[len(reports)-1].Bytes != reports[0].Total {
		c.t.Errorf("notified %+v", reports)
		return
	}
	if last := reports[len(reports)-1]; last.Step != lastStep || last.Total != a.Model.Fetched {
		c.t.Errorf("notified %+v of %d bytes", last, a.Model.Fetched)
	}
}

// check checks that the run's model is held, shared and loaded, bit for bit.
func (c *rig) check(a *Attempt) {
	c.t.Helper()
	want := digestOf(c.after)
	if c.models.Held != a.Model || a.Model.Digest != want || a.Model.Step != lastStep {
		c.t.Errorf("held %+v", c.models.Held)
	}
	if shared := c.models.Shared(want); shared == nil || len(shared.Blobs) != len(c.after.Files)+len(c.after.Tensors) {
		c.t.Errorf("shared %+v", shared)
	}
	loaded, err := a.Trainer.Snapshot(c.t.Context())
	loaded.Step = lastStep
	if err != nil || digestOf(loaded) != want {
		c.t.Errorf("the trainer has a different model, %v", err)
	}
}

// TestOnlyTheRunsModelIsAdopted checks that only the run's model is adopted, whichever results peers
// claim to be counted, and everything of the attempt is dropped. The whole model can be fetched then.
func TestOnlyTheRunsModelIsAdopted(t *testing.T) {
	for name, falsify := range map[string]func(c *rig){
		"a result left out":         func(c *rig) { c.rounds[1].Results = nil },
		"another cold start":        func(c *rig) { c.rounds[0].ColdSteps = 9 },
		"another trainer":           func(c *rig) { c.rounds[2].Results[0].Owner[0]++ },
		"another batch":             func(c *rig) { c.rounds[2].Results[0].Batch.End++ },
		"a result nobody has":       func(c *rig) { c.rounds[2].Results[0].Commitment[0]++ },
		"a result of another round": func(c *rig) { c.rounds[2].Results[0] = c.rounds[1].Results[0] },
		"more than is possible":     func(c *rig) { c.rounds[2].Results[0].Size = 1<<10 + 1 },
	} {
		t.Run(name, func(t *testing.T) {
			c := newRig(t)
			c.inMemory()
			falsify(c)
			c.resultsAt(c.rounds)
			c.modelAt()
			a, err := c.obtain()
			if !errors.Is(err, ErrReplay) || c.models.Held != nil || a.Model.Source != "" || len(a.Model.Blobs) > 0 {
				t.Fatalf("from %q, %v", a.Model.Source, err)
			}
			for _, hash := range a.results {
				if !slices.Contains(c.dropped, hash) {
					t.Errorf("result %x is left", hash[:4])
				}
			}
			c.request.Sources = []core.Source{core.OtherMembers}
			if a, err = c.obtain(); err != nil || a.Model.Source != "peers" {
				t.Fatalf("then from %q, %v", a.Model.Source, err)
			}
			c.check(a)
		})
	}
}

// falsePeers is a network in which all peers answer like the honest peer, except about counted results.
type falsePeers struct {
	Network
	honest identity.ID
	asked  bool
}

func (l *falsePeers) Request(ctx context.Context, to identity.ID, protocol string, request []byte, maxResponse int) ([]byte, error) {
	answer, err := l.Network.Request(ctx, l.honest, protocol, request, maxResponse)
	if err == nil && to != l.honest && protocol == exchange.ResultsProtocol {
		l.asked = true
		answer[4]++ // changes the steps of the cold start
	}
	return answer, err
}

// TestMostPeersAreBelieved checks that the client believes the majority of peers about the counted
// results.
func TestMostPeersAreBelieved(t *testing.T) {
	c := newRig(t)
	c.inMemory()
	c.resultsAt(c.rounds)
	falsePeers := &falsePeers{Network: c.network, honest: c.request.Peers[0]}
	c.options.Network = falsePeers
	c.request.Peers = []identity.ID{clienttest.Key(5).ID(), falsePeers.honest, falsePeers.honest} // two peers give the same answer
	a, err := c.obtain()
	if err != nil || a.Model.Source != "results" || !falsePeers.asked {
		t.Fatalf("from %q, %v; a false peer was asked: %v", a.Model.Source, err, falsePeers.asked)
	}
	c.check(a)
}

// TestInitialModel checks that the initial model is accepted, whatever its step was in its earlier
// run, and that it is not shared.
func TestInitialModel(t *testing.T) {
	c := newRig(t)
	c.request.Definition.Checkpoint, c.request.Sources = coordinator.Checkpoint{Kind: coordinator.CheckpointLocal}, []core.Source{core.FirstModel}
	want := c.before
	want.Step = 0
	a, err := c.obtain()
	if err != nil || a.Model.Source != "initial" || a.Model.Step != 0 || a.Model.Digest != digestOf(want) {
		t.Fatalf("got %+v, %v; want nil error and a.Model.Source == \"initial\" and a.Model.Step == 0 and a.Model.Digest == digestOf(want)", a.Model, err)
	}
	if c.models.Held != a.Model || a.Model.Origin != c.request.Definition.Checkpoint || c.models.Shared(a.Model.Digest) != nil {
		t.Error("the model is not held, or it is shared")
	}
}

// TestFailuresAreAllSaid checks that the error reports the failure of each source.
func TestFailuresAreAllSaid(t *testing.T) {
	c := newRig(t)
	c.options.Archive = func(_ context.Context, _ coordinator.Checkpoint, at coordinator.Location) (checkpoint.Snapshot, error) {
		return checkpoint.Snapshot{}, errors.New("cannot be reached: " + at.Repo)
	}
	c.request.Places = []coordinator.Location{{Kind: coordinator.CheckpointGcs, Repo: "one"}, {Kind: coordinator.CheckpointGcs, Repo: "two"}}
	_, err := c.obtain()
	golden.Message(t, "error", err)
}

// TestIntermediateCheckpointOfARunningEpoch checks that an intermediate checkpoint comes from the
// client's own copy, which stays in its place, from an older copy and results, or from members. The
// client does not ask archives.
func TestIntermediateCheckpointOfARunningEpoch(t *testing.T) {
	taken := func(s func(c *rig) checkpoint.Snapshot, noted func(c *rig) [32]byte) func(c *rig) {
		return func(c *rig) {
			c.onDisk(s(c), noted(c))
			c.must(os.Rename(c.options.Folder.Checkpoint(s(c).Step), c.options.Folder.Intermediate(s(c).Step)))
		}
	}
	after := func(c *rig) checkpoint.Snapshot { return c.after }
	before := func(c *rig) checkpoint.Snapshot { return c.before }
	for name, test := range map[string]struct {
		have []func(c *rig)
		want string
	}{
		"a copy of its own":        {[]func(*rig){taken(after, func(c *rig) [32]byte { return digestOf(c.after) })}, FromDisk},
		"a wrong copy of its own":  {[]func(*rig){taken(after, func(c *rig) [32]byte { return digestOf(c.wrong) }), (*rig).modelAt}, "peers"},
		"an older copy of its own": {[]func(*rig){taken(before, func(c *rig) [32]byte { return digestOf(c.before) }), func(c *rig) { c.resultsAt(c.rounds) }, (*rig).modelAt}, "results"},
		"a member's":               {[]func(*rig){(*rig).modelAt}, "peers"},
		"only an archive":          {[]func(*rig){func(c *rig) { c.archived(c.after) }}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			c := newRig(t)
			c.request.Running, c.request.Sources = true, c.request.Sources[:5]
			for _, have := range test.have {
				have(c)
			}
			a, err := c.obtain()
			if a.Model.Source != test.want || (err == nil) != (test.want != "") {
				t.Fatalf("from %q, %v; want it from %q", a.Model.Source, err, test.want)
			}
			if err == nil {
				c.check(a)
			}
			if dir, err := c.options.Folder.FindIntermediate(lastStep, digestOf(c.after)); test.want == FromDisk && err != nil {
				t.Errorf("the model is no longer in %s: %v", dir, err)
			}
		})
	}
}
