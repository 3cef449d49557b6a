package data

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/psyche-go/psyche/core/assign"
	"github.com/psyche-go/psyche/record/config"
)

// maxProbes is the number of sequences that a fallback keeps for comparing locations.
const maxProbes = 4

// fallback reads from one of several locations of the same data. If the current location fails, the
// next one in the list takes over, after the last the first, and serves until it fails itself. A
// location with wrong data is not used again.
//
// A location may take over only if it has the same data: the same number of sequences, in the same
// order, and the same tokens in some of the sequences that were read before. Within the deadline of
// a call, every remaining location gets its share of the time.
type fallback struct {
	options Options
	sources []*source

	// Set once, by the first location that served.
	begun bool
	len   uint64
	first config.DataLocation

	mu       sync.Mutex
	serving  int   // index of the source that is used first
	reported int   // index of the last reported source; -1: none
	because  error // error of a skipped source that has not been replaced yet
	probes   []probe
}

// source is one location. The holder of its lock may open and check it.
type source struct {
	location config.DataLocation
	lock     chan struct{}
	provider Provider // nil: not open
	checked  bool     // it has the same data as the first location that served
	broken   error    // error after which it is not usable any more
}

// probe is a sequence that was read, as its hash.
type probe struct {
	index uint64
	hash  [32]byte
}

func newFallback(locations []config.DataLocation, o Options) *fallback {
	f := &fallback{options: o, reported: -1}
	for _, location := range locations {
		f.sources = append(f.sources, &source{location: location, lock: make(chan struct{}, 1)})
	}
	return f
}

// begin opens the first location that works.
func (f *fallback) begin(ctx context.Context) error {
	var errs []error
	for i := range f.sources {
		opened, err := f.ready(ctx, i)
		if err == nil {
			f.sources[i].checked = true
			f.begun, f.len, f.first = true, opened.Len(), f.sources[i].location
			f.use(i, errors.Join(errs...))
			return nil
		}
		if ctx.Err() != nil {
			return err
		}
		f.options.Logger.Warn("cannot open a data location", "location", describe(f.sources[i].location), "err", err)
		errs = append(errs, fmt.Errorf("data location %s: %w", describe(f.sources[i].location), err))
	}
	return errors.Join(errs...)
}

// Len returns the number of sequences of one pass.
func (f *fallback) Len() uint64 { return f.len }

// Close closes all locations.
func (f *fallback) Close() error {
	var errs []error
	for _, source := range f.sources {
		source.lock <- struct{}{}
		if source.provider != nil {
			errs = append(errs, source.provider.Close())
		}
		source.provider, source.broken = nil, errors.New("closed")
		<-source.lock
	}
	return errors.Join(errs...)
}

// Batch reads a batch from the current location, or from the next location that works. Indices at
// or beyond Len belong to further passes over the data.
func (f *fallback) Batch(ctx context.Context, id assign.BatchID) (Batch, error) {
	return f.Gather(ctx, id, []assign.BatchID{id}, false)
}

// Gather implements gatherer. The whole batch comes from one location.
func (f *fallback) Gather(ctx context.Context, id assign.BatchID, from []assign.BatchID, audit bool) (Batch, error) {
	how := func(ctx context.Context, p Provider) (Batch, error) { return Gather(ctx, p, id, from, audit) }
	if err := ctx.Err(); err != nil {
		return Batch{}, fmt.Errorf("read batch %v: %w", id, err)
	}
	f.mu.Lock()
	first := f.serving
	f.mu.Unlock()
	var errs []error
	final := true
	for n := range f.sources {
		i := (first + n) % len(f.sources)
		batch, err := f.from(ctx, i, len(f.sources)-n, id, how)
		if err == nil {
			f.remember(batch, from[0].Start)
			f.use(i, errors.Join(errs...))
			return batch, nil
		}
		if errors.Is(ctx.Err(), context.Canceled) {
			return Batch{}, err
		}
		err = fmt.Errorf("data location %s: %w", describe(f.sources[i].location), err)
		errs = append(errs, err)
		final = final && IsPermanent(err)
		f.options.Logger.Warn("data location failed", "batch", id, "err", err)
		if ctx.Err() != nil {
			// This location used up all the time, so the next call starts with another.
			f.skip(i, err)
			break
		}
	}
	if err := errors.Join(errs...); final {
		return Batch{}, err
	}
	return Batch{}, failed(errs)
}

// failed joins the errors of locations. Some of them may be temporary, so the joined error must not
// be permanent. failed therefore hides the types of permanent errors from IsPermanent.
func failed(errs []error) error {
	for i, err := range errs {
		if IsPermanent(err) {
			errs[i] = errors.New(err.Error())
		}
	}
	return errors.Join(errs...)
}

// from reads a batch from one location, within its share of the remaining time.
func (f *fallback) from(ctx context.Context, i, left int, id assign.BatchID, how func(context.Context, Provider) (Batch, error)) (Batch, error) {
	if deadline, ok := ctx.Deadline(); ok && left > 1 {
		share, cancel := context.WithTimeout(ctx, time.Until(deadline)/time.Duration(left))
		defer cancel()
		ctx = share
	}
	opened, err := f.ready(ctx, i)
	if err != nil {
		return Batch{}, err
	}
	batch, err := how(ctx, opened)
	if err == nil {
		err = batch.check(id)
	}
	if err != nil && IsPermanent(err) {
		f.drop(f.sources[i], err)
	}
	return batch, err
}

// ready opens a location unless it is open, and compares it with previously read data.
func (f *fallback) ready(ctx context.Context, i int) (Provider, error) {
	s := f.sources[i]
	select {
	case s.lock <- struct{}{}:
		defer func() { <-s.lock }()
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	if s.broken != nil {
		return nil, s.broken
	}
	if s.provider == nil {
		opened, err := open(ctx, s.location, f.options)
		if err != nil {
			return nil, err
		}
		s.provider = opened
	}
	if f.begun && !s.checked {
		if err := f.compare(ctx, s); err != nil {
			if IsPermanent(err) {
				s.broken = err
			}
			return nil, err
		}
		s.checked = true
	}
	return s.provider, nil
}

func (f *fallback) drop(s *source, err error) {
	s.lock <- struct{}{}
	defer func() { <-s.lock }()
	s.broken = err
}

// compare returns an error if the data of a location differs from the data of the location that
// served first.
func (f *fallback) compare(ctx context.Context, s *source) error {
	if got := s.provider.Len(); got != f.len {
		return fmt.Errorf("%w: %d sequences, want %d", ErrOtherData, got, f.len)
	}
	if !sameOrder(f.first, s.location) {
		return fmt.Errorf("%w: the order of sequences (shuffle) differs", ErrOtherData)
	}
	f.mu.Lock()
	probes := slices.Clone(f.probes)
	f.mu.Unlock()
	for _, probe := range probes {
		hash, err := fingerprint(ctx, s.provider, probe.index)
		if err != nil {
			return err
		}
		if hash != probe.hash {
			return fmt.Errorf("%w: sequence %d differs", ErrOtherData, probe.index)
		}
	}
	return nil
}

// fingerprinter is a provider that returns the fingerprints of sequences of past rounds, which it
// would not deliver again.
type fingerprinter interface {
	Fingerprint(ctx context.Context, index uint64) ([32]byte, error)
}

// fingerprint returns the fingerprint of a provider's sequence.
func fingerprint(ctx context.Context, p Provider, index uint64) ([32]byte, error) {
	if direct, ok := p.(fingerprinter); ok {
		return direct.Fingerprint(ctx, index)
	}
	batch, err := p.Batch(ctx, assign.BatchID{Start: index, End: index + 1})
	if err != nil {
		return [32]byte{}, err
	}
	if err := batch.check(assign.BatchID{Start: index, End: index + 1}); err != nil {
		return [32]byte{}, err
	}
	return Fingerprint(batch, 0), nil
}

// sameOrder reports whether two locations have their sequences in the same order, as far as that is
// known: the order of a data server is unknown.
func sameOrder(a, b config.DataLocation) bool {
	first, second := shuffleOf(a), shuffleOf(b)
	if a.Server != nil || b.Server != nil || first == second {
		return true
	}
	return first != nil && second != nil && *first == *second
}

// shuffleOf returns the seed of a location's order, or nil.
func shuffleOf(location config.DataLocation) *[32]byte {
	switch {
	case location.Local != nil:
		return location.Local.Shuffle.Seed
	case location.HTTP != nil:
		return location.HTTP.Shuffle.Seed
	default:
		return nil
	}
}

// remember keeps the hash of a batch's first sequence, which has an index.
func (f *fallback) remember(batch Batch, index uint64) {
	if len(f.sources) == 1 {
		return
	}
	p := probe{index: index, hash: Fingerprint(batch, 0)}
	f.mu.Lock()
	defer f.mu.Unlock()
	if len(f.probes) == maxProbes {
		f.probes = slices.Delete(f.probes, 0, 1)
	}
	f.probes = append(f.probes, p)
}

// Fingerprint returns the SHA-256 of a sequence's tokens, labels and positions. Each of the three
// is encoded as the byte 0 if the batch has none, and otherwise as the byte 1, the number of values
// (8 bytes) and the values (4 bytes each), little endian.
func Fingerprint(batch Batch, sequence int) [32]byte {
	var raw []byte
	for _, part := range [][][]int32{batch.Sequences, batch.Labels, batch.Positions} {
		if part == nil {
			raw = append(raw, 0)
			continue
		}
		raw = binary.LittleEndian.AppendUint64(append(raw, 1), uint64(len(part[sequence])))
		for _, token := range part[sequence] {
			raw = binary.LittleEndian.AppendUint32(raw, uint32(token))
		}
	}
	return sha256.Sum256(raw)
}

// use records which location serves, and reports a change.
func (f *fallback) use(i int, because error) {
	f.mu.Lock()
	f.serving = i
	same := f.reported == i
	because = errors.Join(f.because, because)
	f.reported, f.because = i, nil
	f.mu.Unlock()
	if same {
		return
	}
	f.options.Logger.Info("training data", "location", describe(f.sources[i].location))
	if f.options.Serving != nil {
		f.options.Serving(Serving{Index: i, Location: describe(f.sources[i].location), Because: because})
	}
}

// skip makes the next call start after a location.
func (f *fallback) skip(i int, because error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.serving, f.because = (i+1)%len(f.sources), because
}
