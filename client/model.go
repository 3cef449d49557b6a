package client

import (
	"bytes"
	"slices"

	"github.com/psyche-go/psyche/checkpoint"
	"github.com/psyche-go/psyche/coordinator"
	"lukechampine.com/blake3"
)

// heldModel is a model with a digest: the one an epoch starts from, or ended with.
type heldModel struct {
	digest    [32]byte // of manifest
	step      uint32
	origin    coordinator.Checkpoint // it was loaded for; zero when it was trained here
	fresh     bool                   // the optimizer has no momentum
	prepared  epochKey               // that the optimizer is set up for
	coldSteps uint32                 // of that epoch's cold start
	source    string                 // as event.Ready says it
	fetched   uint64                 // bytes from peers
	size      uint64                 // bytes of all parts; 0 when it was trained here
	seconds   float64                // to load it
	snapshot  checkpoint.Snapshot    // only of models that peers may ask for
	manifest  []byte                 // encoded
	blobs     [][32]byte             // that are shared for it
}

// partialModel is what is already here of a model that is being fetched.
type partialModel struct {
	digest   [32]byte
	blobs    [][32]byte
	attempts int // to get it
}

func blake3Sum(data []byte) [32]byte { return blake3.Sum256(data) }

// fromPeers reports whether a checkpoint is one that members hand over.
func fromPeers(c coordinator.Checkpoint) bool {
	return c.Kind == coordinator.CheckpointP2P || c.Kind == coordinator.CheckpointP2PGcs
}

// holdsModel reports whether the trainer holds exactly the coordinator's checkpoint, and
// is built as the run says now.
func (n *Node) holdsModel() bool {
	if n.model == nil || n.redefined() {
		return false
	}
	c := n.state.Model.Checkpoint
	if fromPeers(c) {
		return n.model.digest == c.Digest
	}
	return n.model.origin == c
}

// redefined reports whether the run was configured anew, while it was paused, since the
// trainer was built.
func (n *Node) redefined() bool {
	return n.trainer != nil && !bytes.Equal(n.built, n.state.Model.Definition)
}

// share lets peers fetch a model.
func (n *Node) share(m *heldModel) {
	n.shelf.putManifest(m.digest, m.manifest)
	n.shares = append(slices.DeleteFunc(n.shares, func(other *heldModel) bool { return other.digest == m.digest }), m)
	n.dropShares()
}

// shareOf returns the shared model with the digest, or nil.
func (n *Node) shareOf(digest [32]byte) *heldModel {
	for _, m := range n.shares {
		if m.digest == digest {
			return m
		}
	}
	return nil
}

// dropShares stops sharing what nobody can need any more: all but the newest model and
// the one that the coordinator recorded.
func (n *Node) dropShares() {
	if len(n.shares) < 2 {
		return
	}
	newest := n.shares[len(n.shares)-1]
	old := n.shares
	n.shares = slices.DeleteFunc(slices.Clone(old), func(m *heldModel) bool {
		return m != newest && m.digest != n.state.Model.Checkpoint.Digest
	})
	n.stopSharing(old)
}

// dropOtherShares stops sharing all models but the one with the digest, which the run has
// recorded: nobody starts from another.
func (n *Node) dropOtherShares(digest [32]byte) {
	old := n.shares
	n.shares = slices.DeleteFunc(slices.Clone(old), func(m *heldModel) bool { return m.digest != digest })
	n.stopSharing(old)
}

// stopSharing drops the models of old that are not shared any more.
func (n *Node) stopSharing(old []*heldModel) {
	for _, m := range old {
		if !slices.Contains(n.shares, m) {
			n.shelf.dropManifest(m.digest)
			n.dropBlobs(m.blobs)
		}
	}
}

// dropBlobs drops what nothing else here needs as well. A peer may announce any hash as
// that of its result: one of another's result, or of a part of the model.
func (n *Node) dropBlobs(hashes [][32]byte) {
	if len(hashes) == 0 {
		return
	}
	unneeded := make(map[[32]byte]bool, len(hashes))
	for _, hash := range hashes {
		unneeded[hash] = true
	}
	for _, m := range n.shares {
		for _, hash := range m.blobs {
			delete(unneeded, hash)
		}
	}
	for _, hash := range n.partial.blobs {
		delete(unneeded, hash)
	}
	for _, l := range n.rounds {
		l.eachBlob(func(hash [32]byte) { delete(unneeded, hash) })
	}
	n.past.eachBlob(func(hash [32]byte) { delete(unneeded, hash) })
	for _, hash := range hashes {
		if unneeded[hash] {
			n.Network.Drop(hash)
		}
	}
}

// keepPartial drops the parts of another model that was not completed.
func (n *Node) keepPartial(digest [32]byte) {
	if n.partial.digest != digest {
		old := n.partial.blobs
		n.partial = partialModel{digest: digest}
		n.dropBlobs(old)
	}
}
