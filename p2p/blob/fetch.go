package blob

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"
	"lukechampine.com/blake3"

	"github.com/psyche-go/psyche/identity"
	"github.com/psyche-go/psyche/p2p"
)

const (
	probeTimeout  = 5 * time.Second // of one holder that is asked for a size
	fetchesAtOnce = 4               // payloads that FetchMany works on
)

// Errors of a fetch as a whole.
var (
	// ErrNoHolders says that no member was named that could hold the payload.
	ErrNoHolders = errors.New("no holders")
	// ErrTooLarge says that a payload is proven to be larger than the caller takes.
	ErrTooLarge = errors.New("blob too large")
)

var emptyHash = Hash(blake3.Sum256(nil))

// HolderError is why one holder did not deliver.
type HolderError struct {
	Holder identity.ID
	Err    error
}

func (e HolderError) Error() string { return e.Holder.Short() + ": " + e.Err.Error() }

func (e HolderError) Unwrap() error { return e.Err }

// FetchError is why a payload could not be fetched: the failures of its holders.
// errors.Is finds the reason of each of them.
type FetchError struct {
	Hash     Hash
	Failures []HolderError
}

func (e *FetchError) Error() string {
	texts := make([]string, 0, len(e.Failures))
	for _, failure := range e.Failures {
		texts = append(texts, failure.Error())
	}
	return fmt.Sprintf("no holder delivered blob %s: %s", e.Hash.Short(), strings.Join(texts, "; "))
}

// Unwrap returns the failures.
func (e *FetchError) Unwrap() []error {
	errs := make([]error, 0, len(e.Failures))
	for _, failure := range e.Failures {
		errs = append(errs, failure)
	}
	return errs
}

// flight is a fetch that several callers wait for.
type flight struct {
	done chan struct{}
	data []byte
	err  error
}

// The size belongs to the key: a wrong announcement must not spoil a right one.
type flightKey struct {
	hash Hash
	size uint64
}

// Fetch returns the payload of a hash and an announced size, from the store or else from
// holders, and keeps it in the store without a tag. Holders are preferred in the order
// given; those that are not members are left out. Callers that want the same payload at
// the same time share one fetch. It ends when the payload is complete, when every holder
// has failed, or with ctx.
//
// Errors match ErrFull, ErrNoHolders, the end of ctx, or are a *FetchError.
func Fetch(ctx context.Context, n *p2p.Node, s *Store, hash Hash, size uint64, holders []identity.ID) ([]byte, error) {
	key := flightKey{hash, size}
	for {
		data, held, f, mine := s.board(key)
		switch {
		case held && uint64(len(data)) != size:
			return nil, fmt.Errorf("fetch blob %s: %w: it has %d bytes, announced %d", hash.Short(), ErrSize, len(data), size)
		case held:
			return data, nil
		case mine:
			f.data, f.err = fetch(ctx, n, s, key, holders)
			s.land(key, f)
			return f.data, f.err
		}
		select {
		case <-f.done:
		case <-ctx.Done():
			return nil, fmt.Errorf("fetch blob %s: %w", hash.Short(), ctx.Err())
		}
		// If the other caller's time ran out, ours has not.
		if !errors.Is(f.err, context.Canceled) && !errors.Is(f.err, context.DeadlineExceeded) {
			return f.data, f.err
		}
	}
}

// board returns the payload if it is held, else the flight for it, which is the caller's
// to fly if there was none.
func (s *Store) board(key flightKey) (data []byte, held bool, f *flight, mine bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if e, ok := s.blobs[key.hash]; ok {
		return e.data, true, nil, false
	}
	f, ok := s.flights[key]
	if !ok {
		f = &flight{done: make(chan struct{})}
		s.flights[key] = f
	}
	return nil, false, f, !ok
}

func (s *Store) land(key flightKey, f *flight) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.flights, key)
	close(f.done)
}

func fetch(ctx context.Context, n *p2p.Node, s *Store, key flightKey, holders []identity.ID) ([]byte, error) {
	data, err := []byte{}, s.reserve(key.size)
	if err != nil {
		return nil, fmt.Errorf("fetch blob %s: %w", key.hash.Short(), err)
	}
	switch {
	case key.size > 0:
		data, err = newDownload(n, s, key, holders).run(ctx)
	case key.hash != emptyHash:
		err = fmt.Errorf("%w: announced as empty", ErrSize)
	}
	if err != nil {
		s.unreserve(key.size)
		return nil, fmt.Errorf("fetch blob %s of %d bytes: %w", key.hash.Short(), key.size, err)
	}
	s.keep(key.hash, data)
	return data, nil
}

// FetchUpTo is Fetch for a payload whose size nobody has announced: holders are asked
// for a proof of the size first. The error matches ErrTooLarge if it is over maxSize.
func FetchUpTo(ctx context.Context, n *p2p.Node, s *Store, hash Hash, maxSize uint64, holders []identity.ID) ([]byte, error) {
	if data, ok := s.Get(hash); ok {
		if uint64(len(data)) > maxSize {
			return nil, fmt.Errorf("fetch blob %s: %w: %d bytes, at most %d", hash.Short(), ErrTooLarge, len(data), maxSize)
		}
		return data, nil
	}
	failed := &FetchError{Hash: hash}
	for _, holder := range s.order(n, holders) {
		size, err := probe(ctx, source{n, holder, hash})
		switch {
		case ctx.Err() != nil:
			return nil, fmt.Errorf("fetch blob %s: %w", hash.Short(), ctx.Err())
		case err != nil:
			s.blame(n, holder, hash, err)
			failed.Failures = append(failed.Failures, HolderError{holder, err})
			continue
		case size > maxSize:
			return nil, fmt.Errorf("fetch blob %s: %w: %d bytes, at most %d", hash.Short(), ErrTooLarge, size, maxSize)
		}
		return Fetch(ctx, n, s, hash, size, holders)
	}
	if len(failed.Failures) == 0 {
		return nil, fmt.Errorf("fetch blob %s: %w", hash.Short(), ErrNoHolders)
	}
	return nil, failed
}

func probe(ctx context.Context, from source) (uint64, error) {
	ctx, cancel := context.WithTimeout(ctx, probeTimeout)
	defer cancel()
	return from.probe(ctx)
}

// Want names a payload that FetchMany is to get.
type Want struct {
	Hash Hash
	Size uint64
}

// FetchMany fetches several payloads that all holders have, such as the tensors of a
// model, and returns them in the order of wants. A few are fetched at the same time, and
// each starts with another holder. The first failure ends it.
func FetchMany(ctx context.Context, n *p2p.Node, s *Store, wants []Want, holders []identity.ID) ([][]byte, error) {
	payloads := make([][]byte, len(wants))
	tasks, ctx := errgroup.WithContext(ctx)
	tasks.SetLimit(fetchesAtOnce)
	for i, want := range wants {
		turned := holders
		if len(holders) > 1 {
			first := i % len(holders)
			turned = append(append([]identity.ID{}, holders[first:]...), holders[:first]...)
		}
		tasks.Go(func() (err error) {
			payloads[i], err = Fetch(ctx, n, s, want.Hash, want.Size, turned)
			return err
		})
	}
	if err := tasks.Wait(); err != nil {
		return nil, err
	}
	return payloads, nil
}

// order returns the holders that can be asked: members, each once, and last those that
// have sent wrong bytes before.
func (s *Store) order(n *p2p.Node, holders []identity.ID) []identity.ID {
	known := make(map[identity.ID]bool, len(holders))
	var trusted, offenders []identity.ID
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, holder := range holders {
		if known[holder] || holder == n.ID() || !n.IsMember(holder) {
			continue
		}
		known[holder] = true
		if s.offences[holder] > 0 {
			offenders = append(offenders, holder)
		} else {
			trusted = append(trusted, holder)
		}
	}
	return append(trusted, offenders...)
}

// blame counts a holder's wrong bytes.
func (s *Store) blame(n *p2p.Node, holder identity.ID, hash Hash, err error) {
	if !errors.Is(err, ErrCorrupt) {
		return
	}
	s.mu.Lock()
	s.offences[holder]++
	s.mu.Unlock()
	n.Logger().Warn("blob: holder sent wrong bytes", "holder", holder.Short(), "blob", hash.Short(), "err", err)
}

// slot limits the streams to one holder, so that we are not refused as too greedy.
func (s *Store) slot(holder identity.ID) chan struct{} {
	s.mu.Lock()
	defer s.mu.Unlock()
	slot, ok := s.slots[holder]
	if !ok {
		slot = make(chan struct{}, servesPerPeer/2)
		s.slots[holder] = slot
	}
	return slot
}
