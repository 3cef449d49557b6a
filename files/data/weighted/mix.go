package weighted

import (
	"context"
	"errors"
	"fmt"

	"golang.org/x/sync/errgroup"

	"github.com/psyche-go/psyche/files/data/shuffle"
)

// Source provides sequences by their index. Indices at or beyond Len belong to further passes.
type Source interface {
	Read(ctx context.Context, indices []uint64) ([][]int32, error)
	Len() uint64
	Close() error
}

// Mix is a mixture of sources. Its methods may be called concurrently.
type Mix struct {
	sources []Source
	shares  []uint32
	cycle   []place
	order   *shuffle.Permutation // order of the slots of each cycle; nil: unchanged
}

// place is one slot of a cycle.
type place struct {
	source uint16
	rank   uint32 // number of previous slots of the same source
}

// New mixes sources by their shares, at least one each and at most maxCycle together. The Mix
// closes the sources.
func New(sources []Source, shares []uint32, seed *[32]byte) (*Mix, error) {
	if len(sources) == 0 || len(sources) != len(shares) || len(sources) > maxSources {
		return nil, fmt.Errorf("%w: %d sources and %d shares", errWeights, len(sources), len(shares))
	}
	sum := uint64(0)
	for i, share := range shares {
		if share == 0 || sources[i].Len() == 0 {
			return nil, fmt.Errorf("%w: source %d has %d shares and %d sequences", errWeights, i, share, sources[i].Len())
		}
		sum += uint64(share)
	}
	if sum > maxCycle {
		return nil, fmt.Errorf("%w: %d shares in total, the limit is %d", errWeights, sum, maxCycle)
	}
	m := &Mix{sources: sources, shares: shares, cycle: arrange(shares, int64(sum))}
	if seed != nil {
		m.order = shuffle.New(*seed, sum)
	}
	return m, nil
}

// arrange distributes the sources over a cycle. In each step it takes the source that is furthest
// behind its share. At the end all sources have exactly their shares: the deficit of each source is
// then a multiple of length and more than −length, and the deficits add up to zero.
func arrange(shares []uint32, length int64) []place {
	behind := make([]int64, len(shares))
	taken := make([]uint32, len(shares))
	cycle := make([]place, length)
	for i := range cycle {
		furthest := 0
		for source, share := range shares {
			behind[source] += int64(share)
			if behind[source] > behind[furthest] {
				furthest = source
			}
		}
		behind[furthest] -= length
		cycle[i] = place{source: uint16(furthest), rank: taken[furthest]}
		taken[furthest]++
	}
	return cycle
}

// At returns the source and the sequence number for an index.
func (m *Mix) At(index uint64) (source int, sequence uint64) {
	length := uint64(len(m.cycle))
	number, at := index/length, index%length
	if m.order != nil {
		at = m.order.At(index)
	}
	p := m.cycle[at]
	return int(p.source), number*uint64(m.shares[p.source]) + uint64(p.rank)
}

// Sources returns the sources, in the order of At's numbers.
func (m *Mix) Sources() []Source { return m.sources }

// Len returns the number of sequences of all sources together.
func (m *Mix) Len() uint64 {
	sum := uint64(0)
	for _, source := range m.sources {
		sum += source.Len()
	}
	return sum
}

// Read returns the sequences of the given indices, in their order.
func (m *Mix) Read(ctx context.Context, indices []uint64) ([][]int32, error) {
	wanted := make([][]uint64, len(m.sources))
	places := make([][]int, len(m.sources))
	for i, index := range indices {
		source, sequence := m.At(index)
		wanted[source] = append(wanted[source], sequence)
		places[source] = append(places[source], i)
	}
	sequences := make([][]int32, len(indices))
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(8)
	for source := range m.sources {
		if len(wanted[source]) == 0 {
			continue
		}
		group.Go(func() error {
			read, err := m.sources[source].Read(ctx, wanted[source])
			if err != nil {
				return fmt.Errorf("source %d: %w", source, err)
			}
			for i, place := range places[source] {
				sequences[place] = read[i]
			}
			return nil
		})
	}
	if err := group.Wait(); err != nil {
		return nil, err
	}
	return sequences, nil
}

// Close closes the sources.
func (m *Mix) Close() error {
	var errs []error
	for _, source := range m.sources {
		errs = append(errs, source.Close())
	}
	return errors.Join(errs...)
}
