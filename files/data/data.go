package data

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"

	"github.com/psyche-go/psyche/core/assign"
	"github.com/psyche-go/psyche/files/data/web"
	"github.com/psyche-go/psyche/files/objstore"
	"github.com/psyche-go/psyche/record/config"
)

// Errors of New and of providers.
var (
	// errUnsupported means that a kind of location is known but cannot be read here.
	errUnsupported = errors.New("this program cannot read the data location")

	// ErrOtherData means that a location has other data than a location that was read before.
	ErrOtherData = errors.New("data location has different data than the previous location")

	// ErrUnusable means that a location is not usable; a retry does not help.
	ErrUnusable = errors.New("data location cannot be used")

	// errFailing is the error of a Dummy location that always fails.
	errFailing = errors.New("dummy data location fails on purpose")
)

// Provider returns sequences by their index over the whole run. Its methods may be called
// concurrently.
type Provider interface {
	// Batch returns the sequences of a batch in the order of their indices. Indices at
	// or beyond Len belong to further passes over the data.
	Batch(ctx context.Context, id assign.BatchID) (Batch, error)

	// Len returns the number of sequences of one pass.
	Len() uint64

	// Close stops the provider's background work and closes its files.
	Close() error
}

// Options are the settings of New.
type Options struct {
	SeqLen    int    // tokens of a sequence, without the additional token that is only a label
	VocabSize int    // token IDs must be less; 0: not checked
	Path      string // local folder to read instead of the run's locations; may be empty

	// Bucket opens a bucket of Google Cloud Storage; nil: such locations are not supported.
	// Programs provide the driver, so that this package does not import one.
	Bucket func(ctx context.Context, name string) (objstore.Store, error)

	// Server connects to a data server; nil: such locations are not supported. Programs provide it,
	// because it needs a key and a run (package files/data/remote).
	Server func(ctx context.Context, at config.ServerData, o Options) (Provider, error)

	Web     web.Options
	Logger  *slog.Logger  // nil: silent
	Serving func(Serving) // called when a location starts to serve; may be nil
}

// Serving describes the location that serves from now on.
type Serving struct {
	Index    int    // index in the run's list
	Location string // kind and address, without secrets
	Because  error  // error of the previous location; nil for the first
}

// New opens the first working location of the list. The returned provider switches to the next
// location if one fails; see fallback. With Options.Path it opens that folder, which must contain
// the run's data, with the token size and shuffle of the first location that has them. The error
// contains the reason for each location that did not work.
func New(ctx context.Context, locations []config.DataLocation, o Options) (Provider, error) {
	o.Logger = cmp.Or(o.Logger, slog.New(slog.DiscardHandler))
	o.Web.Logger = cmp.Or(o.Web.Logger, o.Logger)
	if o.Path != "" {
		location, err := override(locations, o.Path)
		if err != nil {
			return nil, fmt.Errorf("open data: %w", err)
		}
		locations = []config.DataLocation{location}
	}
	if len(locations) == 0 {
		return nil, errors.New("open data: the run has no data location; add one")
	}
	f := newFallback(locations, o)
	if err := f.begin(ctx); err != nil {
		return nil, errors.Join(fmt.Errorf("open data: %w", err), f.Close())
	}
	return f, nil
}

// override returns a local location with the token size and shuffle of the run's data.
func override(locations []config.DataLocation, path string) (config.DataLocation, error) {
	mixed, served := false, false
	for _, location := range locations {
		switch {
		case location.Local != nil:
			return local(path, location.Local.TokenSize, location.Local.Shuffle), nil
		case location.HTTP != nil:
			return local(path, location.HTTP.TokenSize, location.HTTP.Shuffle), nil
		case location.Preprocessed != nil:
			return config.DataLocation{Preprocessed: &config.PreprocessedData{Path: path}}, nil
		case location.WeightedHTTP != nil:
			mixed = true
		case location.Server != nil:
			served = true
		}
	}
	if mixed {
		return config.DataLocation{}, fmt.Errorf("%w: a folder cannot replace a weighted mix of sources", errUnsupported)
	}
	if served {
		return config.DataLocation{}, fmt.Errorf("%w: a folder cannot replace a data server, because only the server's operator knows its order of sequences", errUnsupported)
	}
	return local(path, config.TwoBytes, config.Shuffle{}), nil
}

func local(path string, size config.TokenSize, shuffle config.Shuffle) config.DataLocation {
	return config.DataLocation{Local: &config.LocalData{Path: path, TokenSize: size, Shuffle: shuffle}}
}
