package modelsync

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/psyche-go/psyche/base/identity"
	"github.com/psyche-go/psyche/files/checkpoint"
	"github.com/psyche-go/psyche/node/exchange"
	"github.com/psyche-go/psyche/record/event"
)

// fromPeers fetches the manifest, files and tensors of a model from members that hold it.
func (a *Attempt) fromPeers(ctx context.Context) (checkpoint.Snapshot, bool, error) {
	snapshot, err := a.fetch(ctx)
	more := a.Archive != nil && !a.Running && errors.Is(err, ErrNoHolder)
	if more {
		a.Log.Log(ctx, Level(a.Tries), "no member provides the model; looking in archives", "err", err)
	}
	return snapshot, more, err
}

func (a *Attempt) fetch(ctx context.Context) (checkpoint.Snapshot, error) {
	encoded, holders := a.manifest(ctx)
	if len(holders) == 0 {
		return checkpoint.Snapshot{}, fmt.Errorf("%w: asked %d members for %s", ErrNoHolder, len(a.Peers), short(a.checkpoint().Digest))
	}
	manifest, err := checkpoint.DecodeManifest(encoded)
	if err != nil { // a quorum vouched for exactly these bytes
		return checkpoint.Snapshot{}, err
	}
	parts, err := a.parts(ctx, manifest, holders)
	if err != nil {
		return checkpoint.Snapshot{}, fmt.Errorf("%w: %w", ErrNoHolder, err)
	}
	snapshot, err := manifest.Assemble(func(hash [32]byte, _ uint64) ([]byte, error) { return parts[hash], nil })
	if err != nil {
		return snapshot, err
	}
	a.Model.Snapshot, a.Model.Manifest = snapshot, encoded
	a.Model.Digest, a.Model.Step, a.Model.Source = a.checkpoint().Digest, a.checkpoint().Step, "peers"
	return snapshot, nil
}

// manifest asks all members and returns the manifest and the members that have it. It does not wait
// for late members once two thirds have answered and one of them has the manifest, because the
// digest proves it.
func (a *Attempt) manifest(ctx context.Context) (manifest []byte, holders []identity.ID) {
	timeout := requestTimeout
	if a.Timeout > 0 {
		timeout = min(timeout, a.Timeout)
	}
	ctx, cancel := a.Tasks.WithTimeout(ctx, timeout)
	defer cancel()
	var mu sync.Mutex
	answered := 0
	_ = a.Tasks.Each(ctx, a.ParameterRequests, len(a.Peers), func(ctx context.Context, i int) error {
		peer := a.Peers[i]
		response, err := exchange.AskModel(ctx, a.Network, peer, a.checkpoint().Digest)
		if ctx.Err() != nil {
			return nil // the answer came too late
		}
		mu.Lock()
		defer mu.Unlock()
		if answered++; err == nil {
			manifest, holders = response, append(holders, peer)
		} else { // other members are asked
			a.Log.Debug("ask for the manifest", "peer", peer.Short(), "err", err)
		}
		if 3*answered >= 2*len(a.Peers) && len(holders) > 0 {
			return errAnswered
		}
		return nil
	})
	return manifest, holders
}

// parts fetches every part of the manifest. It first asks holder i for part i.
func (a *Attempt) parts(ctx context.Context, manifest checkpoint.Manifest, holders []identity.ID) (map[[32]byte][]byte, error) {
	var mu sync.Mutex
	parts := make(map[[32]byte][]byte)
	blobs, total := manifest.Blobs(), uint64(0)
	for _, blob := range blobs {
		total += blob.Size
	}
	here := a.progress(event.TransferModel, a.checkpoint().Step, total)
	err := a.Tasks.Each(ctx, a.ParameterRequests, len(blobs), func(ctx context.Context, i int) error {
		blob := blobs[i]
		data, err := a.Network.Fetch(ctx, blob.Hash, blob.Size, rotated(holders, i))
		if err != nil {
			return fmt.Errorf("fetch part %x of the model: %w", blob.Hash[:8], err)
		}
		here.add(blob.Size)
		mu.Lock()
		defer mu.Unlock()
		parts[blob.Hash] = data
		a.Model.Blobs = append(a.Model.Blobs, blob.Hash)
		a.Model.Fetched += blob.Size
		return nil
	})
	return parts, err
}
