package data

import (
	"context"
	"errors"
	"fmt"

	"github.com/psyche-go/psyche/assign"
	"github.com/psyche-go/psyche/config"
	"github.com/psyche-go/psyche/data/local"
)

// Errors of New and of providers.
var (
	// ErrUnsupported says that a kind of location is known but cannot be read yet.
	ErrUnsupported = errors.New("kind of data location is not supported yet")

	// ErrFailing is the error of the Dummy location that is there to fail.
	ErrFailing = errors.New("dummy data location fails on purpose")
)

// Provider delivers sequences by their index over the whole run. Its methods may be
// called concurrently.
type Provider interface {
	// Sequences returns the sequences of a batch in the order of their indices, each
	// of Options.SeqLen+1 tokens: input i is token i, its label token i+1. Indices at
	// or beyond Len belong to further passes over the data.
	Sequences(ctx context.Context, batch assign.BatchID) ([][]int32, error)

	// Len returns the number of sequences of one pass.
	Len() uint64
}

// Options says how New reads.
type Options struct {
	SeqLen    int    // tokens of a sequence, without the one that is only a label
	VocabSize int    // token ids must be less; 0: not checked
	Path      string // local folder to read in place of the run's locations; empty: none
}

// New opens the first location of the list that works. With Options.Path it opens that
// folder, which must hold the run's data, with the token size and shuffle of the first
// location that has them. The error says for every location why it did not work.
func New(ctx context.Context, locations []config.DataLocation, o Options) (Provider, error) {
	if o.Path != "" {
		return openLocal(override(locations, o.Path), o)
	}
	if len(locations) == 0 {
		return nil, errors.New("open data: the run has no data location")
	}
	var errs []error
	for _, location := range locations {
		if err := ctx.Err(); err != nil {
			return nil, fmt.Errorf("open data: %w", err)
		}
		provider, err := open(location, o)
		if err == nil {
			return provider, nil
		}
		errs = append(errs, fmt.Errorf("open data location %s: %w", location.Kind(), err))
	}
	return nil, errors.Join(errs...)
}

func open(location config.DataLocation, o Options) (Provider, error) {
	switch {
	case location.Local != nil:
		return openLocal(*location.Local, o)
	case location.Dummy != nil && location.Dummy.Failing:
		return nil, ErrFailing
	case location.Dummy != nil:
		return newDummy(o.SeqLen)
	default:
		return nil, fmt.Errorf("%w; add a Local location, or name a folder that holds the data", ErrUnsupported)
	}
}

// override returns a folder with the token size and shuffle that the run's data has.
func override(locations []config.DataLocation, path string) config.LocalData {
	for _, location := range locations {
		switch {
		case location.Local != nil:
			return config.LocalData{Path: path, TokenSize: location.Local.TokenSize, Shuffle: location.Local.Shuffle}
		case location.HTTP != nil:
			return config.LocalData{Path: path, TokenSize: location.HTTP.TokenSize, Shuffle: location.HTTP.Shuffle}
		}
	}
	return config.LocalData{Path: path, TokenSize: config.TwoBytes}
}

func openLocal(location config.LocalData, o Options) (Provider, error) {
	folder, err := local.Open(location.Path, local.Options{
		SeqLen:    o.SeqLen,
		TokenSize: int(location.TokenSize),
		Seed:      location.Shuffle.Seed,
		VocabSize: o.VocabSize,
	})
	if err != nil {
		return nil, err
	}
	return folder, nil
}
