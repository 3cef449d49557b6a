package blob

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"lukechampine.com/blake3"

	"github.com/psyche-go/psyche/base/identity"
	"github.com/psyche-go/psyche/net/p2p"
)

const probeTimeout = 5 * time.Second // for one holder's proof of the payload's size

// Errors of a whole fetch.
var (
	// errNoHolders means that none of the given holders is a member.
	errNoHolders = errors.New("no holders")
	// errTooLarge means that a payload is proven to be larger than the caller accepts.
	errTooLarge = errors.New("blob too large")
)

var emptyHash = Hash(blake3.Sum256(nil))

// holderError is the reason why one holder did not deliver.
type holderError struct {
	Holder identity.ID
	Err    error
}

func (e holderError) Error() string { return e.Holder.Short() + ": " + e.Err.Error() }

func (e holderError) Unwrap() error { return e.Err }

// fetchError is the reason why a payload could not be fetched: the failures of all holders that were
// asked. errors.Is and errors.As examine each failure.
type fetchError struct {
	Hash     Hash
	Failures []holderError
}

func (e *fetchError) Error() string {
	texts := make([]string, 0, len(e.Failures))
	for _, failure := range e.Failures {
		texts = append(texts, failure.Error())
	}
	return fmt.Sprintf("no holder delivered blob %s: %s", e.Hash.short(), strings.Join(texts, "; "))
}

// Unwrap returns the failures.
func (e *fetchError) Unwrap() []error {
	errs := make([]error, 0, len(e.Failures))
	for _, failure := range e.Failures {
		errs = append(errs, failure)
	}
	return errs
}

// flight is a running fetch, which several callers may wait for.
type flight struct {
	done chan struct{}
	data []byte
	err  error
}

// flightKey identifies a download. It includes the size, so that an announcement with a wrong size
// does not disturb one with the right size.
type flightKey struct {
	hash Hash
	size uint64
}

// Fetch returns the payload with the given hash and announced size, from the store or from holders.
// The store keeps the payload until it needs the space. Fetch asks all holders that are members:
// first the holders with the best record, then holders without a record, in the given order.
// Concurrent callers that want the same payload share one fetch. Fetch ends when the payload is
// complete, when every holder has failed, or with ctx. A later call does not fetch data again that
// was already verified.
//
// Errors match ErrFull, errNoHolders or the error of ctx, or are a *fetchError.
func Fetch(ctx context.Context, n *p2p.Node, s *Store, hash Hash, size uint64, holders []identity.ID) ([]byte, error) {
	key := flightKey{hash, size}
	for {
		if data, held := s.get(ctx, hash); held {
			if uint64(len(data)) != size {
				return nil, fmt.Errorf("fetch blob %s: %w: %d bytes, announced %d", hash.short(), errSize, len(data), size)
			}
			return data, nil
		}
		f, mine := s.board(key)
		if f == nil { // the payload arrived meanwhile, or is on a disk that does not respond
			if ctx.Err() != nil {
				return nil, fmt.Errorf("fetch blob %s: %w", hash.short(), ctx.Err())
			}
			continue
		}
		if mine {
			f.data, f.err = fetch(ctx, n, s, key, holders)
			s.land(key, f)
			return f.data, f.err
		}
		select {
		case <-f.done:
		case <-ctx.Done():
			return nil, fmt.Errorf("fetch blob %s: %w", hash.short(), ctx.Err())
		}
		// The other caller's context has ended, but ours has not.
		if !errors.Is(f.err, context.Canceled) && !errors.Is(f.err, context.DeadlineExceeded) {
			return f.data, f.err
		}
	}
}

// board returns the flight for a payload. mine reports whether the caller must run the flight,
// because there was none. f is nil if the store has the payload.
func (s *Store) board(key flightKey) (f *flight, mine bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.blobs[key.hash] != nil {
		return nil, false
	}
	f, ok := s.flights[key]
	if !ok {
		f = &flight{done: make(chan struct{})}
		s.flights[key] = f
	}
	return f, !ok
}

func (s *Store) land(key flightKey, f *flight) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.flights, key)
	close(f.done)
}

func fetch(ctx context.Context, n *p2p.Node, s *Store, key flightKey, holders []identity.ID) ([]byte, error) {
	p, err := s.take(key)
	if err == nil {
		err = complete(ctx, n, s, p, holders)
	}
	if err != nil {
		return nil, fmt.Errorf("fetch blob %s of %d bytes: %w", key.hash.short(), key.size, err)
	}
	return s.complete(p), nil
}

// complete fetches the missing part of a partial. After an error it keeps the partial for a later
// fetch.
func complete(ctx context.Context, n *p2p.Node, s *Store, p *partial, holders []identity.ID) error {
	p.open()
	if p.key.size == 0 && p.key.hash != emptyHash {
		s.setAside(p)
		return fmt.Errorf("%w: announced as empty", errSize)
	}
	for {
		if err := newDownload(n, s, p, holders).run(ctx); err != nil {
			s.setAside(p)
			return err
		}
		if p.check() {
			return nil
		}
		s.logger.Warn("blob: the partial payload of an earlier process was changed; fetching the payload again",
			"blob", p.key.hash.short(), "bytes", p.key.size)
	}
}

// FetchUpTo is like Fetch, for a payload whose size is unknown: it first asks holders for a proof of
// the size. The error matches errTooLarge if the size exceeds maxSize.
func FetchUpTo(ctx context.Context, n *p2p.Node, s *Store, hash Hash, maxSize uint64, holders []identity.ID) ([]byte, error) {
	if data, ok := s.get(ctx, hash); ok {
		if uint64(len(data)) > maxSize {
			return nil, fmt.Errorf("fetch blob %s: %w: %d bytes, at most %d", hash.short(), errTooLarge, len(data), maxSize)
		}
		return data, nil
	}
	if ctx.Err() != nil {
		return nil, fmt.Errorf("fetch blob %s: %w", hash.short(), ctx.Err())
	}
	failed := &fetchError{Hash: hash}
	for _, holder := range s.holders.order(n, eligible(n, holders)) {
		size, err := probe(ctx, source{node: n, holder: holder, hash: hash})
		switch {
		case ctx.Err() != nil:
			return nil, fmt.Errorf("fetch blob %s: %w", hash.short(), ctx.Err())
		case err != nil:
			if errors.Is(err, errCorrupt) {
				n.Penalise(holder, p2p.FaultWrongBytes, "size of blob "+hash.short())
			}
			failed.Failures = append(failed.Failures, holderError{holder, err})
			continue
		case size > maxSize:
			return nil, fmt.Errorf("fetch blob %s: %w: %d bytes, at most %d", hash.short(), errTooLarge, size, maxSize)
		}
		return Fetch(ctx, n, s, hash, size, holders)
	}
	if len(failed.Failures) == 0 {
		return nil, fmt.Errorf("fetch blob %s: %w", hash.short(), errNoHolders)
	}
	return nil, failed
}

func probe(ctx context.Context, from source) (uint64, error) {
	ctx, cancel := context.WithTimeout(ctx, probeTimeout)
	defer cancel()
	return from.probe(ctx)
}
