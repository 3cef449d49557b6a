package modelsync

import (
	"slices"
	"testing"

	"github.com/psyche-go/psyche/core/coordinator"
	"github.com/psyche-go/psyche/node/env"
	"github.com/psyche-go/psyche/node/exchange"
)

// TestAttemptsBeginAtDifferentLocations checks that attempts begin at different locations, so that
// a slow location does not delay every attempt.
func TestAttemptsBeginAtDifferentLocations(t *testing.T) {
	digest := [32]byte{1}
	state := &coordinator.State{}
	for i, repo := range []string{"a", "b", "other", "c"} {
		u := coordinator.Upload{Reporter: coordinator.ClientID{byte(i)}, Digest: digest, Place: coordinator.Location{Repo: repo}}
		if repo == "other" {
			u.Digest[0]++
		}
		state.Uploads = append(state.Uploads, u)
	}
	m := NewModels(exchange.NewStore(func([32]byte) {}), &Options{})
	begin := func(digest [32]byte) []coordinator.Location {
		w := Request{Definition: env.Definition{Model: coordinator.Model{Checkpoint: coordinator.Checkpoint{Kind: coordinator.CheckpointP2P, Digest: digest}}}}
		for _, u := range state.UploadsOf(digest) {
			w.Places = append(w.Places, u.Place)
		}
		return m.Begin(w).Places
	}
	for i, want := range []string{"abc", "bca", "cab", "abc"} {
		got := ""
		for _, place := range begin(digest) {
			got += place.Repo
		}
		if got != want {
			t.Errorf("attempt %d looks at %q, want %q", i, got, want)
		}
	}
	if places := begin([32]byte{9}); places != nil {
		t.Errorf("of an unknown model: %v", places)
	}
}

// TestPartsOfOneModelAreKept checks that the parts of an incomplete model are kept, and that they
// are dropped when a different model is needed.
func TestPartsOfOneModelAreKept(t *testing.T) {
	c := newRig(t)
	c.theirs.Cache.PutManifest(digestOf(c.after), c.after.Manifest().Encode())
	config := c.after.Files[0].Data
	hash, err := c.peer.Put(config)
	c.must(err)
	kept := func() bool {
		_, err := c.network.Fetch(t.Context(), hash, uint64(len(config)), nil)
		return err == nil
	}
	if _, err := c.obtain(); err == nil || !kept() {
		t.Fatalf("after %v the client has the part: %v", err, kept())
	}
	c.peer.Drop(hash) // now only this client has the part
	c.must((&Model{}).Publish(c.t.Context(), c.options.Tasks, Idle, c.peer.Lend, c.after))
	c.peer.Drop(hash)
	a, err := c.obtain()
	c.must(err)
	c.check(a)

	c = newRig(t)
	c.theirs.Cache.PutManifest(digestOf(c.after), c.after.Manifest().Encode())
	_, err = c.peer.Put(config)
	c.must(err)
	if _, err := c.obtain(); err == nil || !kept() {
		t.Fatalf("after %v the client has the part: %v", err, kept())
	}
	c.request.Definition.Checkpoint.Digest = digestOf(c.wrong)
	if _, err := c.obtain(); err == nil || kept() {
		t.Errorf("after %v the part of a model that is no longer needed is still here", err)
	}
}

// TestModelInMemory checks that a model in memory needs no peer, and that a newer model replaces
// it.
func TestModelInMemory(t *testing.T) {
	c := newRig(t)
	m := &Model{Step: lastStep}
	c.must(m.Publish(c.t.Context(), c.options.Tasks, Idle, c.network.Lend, c.after))
	c.models.Share(m, m.Digest)
	a, err := c.obtain()
	if err != nil || a.Model.Source != "held" || a.Model == m || !a.Model.Fresh {
		t.Fatalf("from %q, %v", a.Model.Source, err)
	}
	c.check(a)
	c.inMemory()
	c.models.dropOld([32]byte{})
	if c.models.Shared(m.Digest) != nil || c.models.Shared(digestOf(c.before)) == nil {
		t.Error("want only the newest model to be shared")
	}
	for _, hash := range m.Blobs {
		if needed := slices.Contains(c.models.shares[0].Blobs, hash); slices.Contains(c.dropped, hash) == needed {
			t.Errorf("part %x: needed %v", hash[:4], needed)
		}
	}
}

// TestModelBeforeStays checks that a model is kept until the model that the run recorded after it
// has arrived. If the newer model has no holders, the run continues from the model before.
func TestModelBeforeStays(t *testing.T) {
	c := newRig(t)
	c.inMemory()
	before := c.models.shares[0]
	last := &Model{Step: lastStep + 1} // a model that the run did not record
	c.must(last.Publish(c.t.Context(), c.options.Tasks, Idle, c.network.Lend, c.wrong))
	c.models.Share(last, before.Digest)
	recorded := c.request.Definition.Checkpoint
	s := &coordinator.State{Earlier: []coordinator.Recorded{{Step: before.Step, Digest: before.Digest}}}
	s.Model.Checkpoint = recorded
	c.models.Renew(s)
	if _, err := c.obtain(); err == nil {
		t.Fatal("a member has the model")
	}
	if c.models.Shared(before.Digest) == nil {
		t.Error("the previous model is missing")
	}
	if c.models.Shared(last.Digest) != nil {
		t.Error("an unrecorded model is kept")
	}
	c.modelAt()
	a, err := c.obtain()
	c.must(err)
	c.check(a)
	if c.models.Shared(before.Digest) != nil {
		t.Error("the previous model is kept although the newer one has arrived")
	}
}
