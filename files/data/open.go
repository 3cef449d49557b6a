package data

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/psyche-go/psyche/core/assign"
	"github.com/psyche-go/psyche/files/data/bucket"
	localfiles "github.com/psyche-go/psyche/files/data/local"
	"github.com/psyche-go/psyche/files/data/tokens"
	"github.com/psyche-go/psyche/files/data/web"
	"github.com/psyche-go/psyche/record/config"
)

// open opens one location.
func open(ctx context.Context, location config.DataLocation, o Options) (Provider, error) {
	switch {
	case location.Local != nil:
		at := location.Local
		options := tokenOptions(at.TokenSize, at.Shuffle, o)
		if at.TokenSize == config.TwoBytes { // Local = "DIR" contains no size
			options.Claim = tokens.Presumed
		}
		folder, err := localfiles.Open(at.Path, options)
		return asProvider(folder, err, o.SeqLen)
	case location.HTTP != nil:
		source, err := openHTTP(ctx, *location.HTTP, o)
		return readAhead(source, err, o.SeqLen)
	case location.WeightedHTTP != nil:
		mixed, err := openMix(ctx, *location.WeightedHTTP, o)
		return readAhead(mixed, err, o.SeqLen)
	case location.Preprocessed != nil:
		return openSamples(*location.Preprocessed, o)
	case location.Server != nil && o.Server != nil:
		return o.Server(ctx, *location.Server, o)
	case location.Server != nil:
		return nil, fmt.Errorf("%w: it has no client for data servers", errUnsupported)
	case location.Dummy != nil && location.Dummy.Failing:
		return nil, errFailing
	case location.Dummy != nil:
		return newDummy(o.SeqLen)
	default:
		return nil, fmt.Errorf("%w; add a Local or Http location, or name a folder with the data", errUnsupported)
	}
}

func tokenOptions(size config.TokenSize, shuffle config.Shuffle, o Options) tokens.Options {
	return tokens.Options{SeqLen: o.SeqLen, TokenSize: int(size), Seed: shuffle.Seed, VocabSize: o.VocabSize, Claim: tokens.OfLocation}
}

// openHTTP opens files on the web or in a bucket.
func openHTTP(ctx context.Context, at config.HTTPData, o Options) (reader, error) {
	options := tokenOptions(at.TokenSize, at.Shuffle, o)
	if gcp := at.Location.Gcp; gcp != nil {
		if o.Bucket == nil {
			return nil, fmt.Errorf("%w: it has no driver for Google Cloud Storage", errUnsupported)
		}
		store, err := o.Bucket(ctx, gcp.BucketName)
		if err != nil {
			return nil, err
		}
		source, err := bucket.Open(ctx, store, gcp.FilterDirectory, options)
		if err != nil {
			return nil, errors.Join(err, store.Close())
		}
		return source, nil
	}
	source, err := web.Open(ctx, addresses(at.Location), options, o.Web)
	if err != nil {
		return nil, err
	}
	return source, nil
}

// addresses returns the addresses in a location that lists them, in reading order.
func addresses(at config.HTTPLocation) []string {
	switch {
	case at.SingleURL != nil:
		return []string{*at.SingleURL}
	case at.NumberedFiles != nil:
		files := at.NumberedFiles
		all := make([]string, min(files.NumFiles, tokens.MaxFiles+1))
		for i := range all {
			number := strconv.FormatUint(uint64(files.StartIndex)+uint64(i), 10)
			if missing := int(files.NLeftPadZeros) - len(number); missing > 0 {
				number = strings.Repeat("0", missing) + number
			}
			all[i] = strings.Replace(files.URLTemplate, "{}", number, 1)
		}
		return all
	default:
		return at.URLs
	}
}

// describe returns a location in the user's notation, without secrets.
func describe(location config.DataLocation) string {
	kind := location.Kind()
	switch {
	case location.Local != nil:
		return kind + " " + location.Local.Path
	case location.Server != nil:
		return kind + " " + location.Server.Addr
	case location.WeightedHTTP != nil:
		return kind + " " + web.Redact(location.WeightedHTTP.URL)
	case location.Preprocessed != nil:
		return kind + " " + location.Preprocessed.Path
	case location.HTTP != nil && location.HTTP.Location.Gcp != nil:
		at := location.HTTP.Location.Gcp
		return kind + " gs://" + strings.TrimSuffix(at.BucketName+"/"+at.FilterDirectory, "/")
	case location.HTTP != nil:
		if all := addresses(location.HTTP.Location); len(all) > 0 {
			return kind + " " + web.Redact(all[0])
		}
	}
	return kind
}

// reader reads sequences of any indices, in their order.
type reader interface {
	Read(ctx context.Context, indices []uint64) ([][]int32, error)
	Len() uint64
	Close() error
}

// sequences is the Provider of a reader.
type sequences struct {
	reader
	seqLen int
}

// asProvider prevents a nil reader from becoming a non-nil interface.
func asProvider(r reader, err error, seqLen int) (Provider, error) {
	if err != nil {
		return nil, err
	}
	return sequences{reader: r, seqLen: seqLen}, nil
}

// Batch implements Provider.
func (s sequences) Batch(ctx context.Context, id assign.BatchID) (Batch, error) {
	if err := tokens.CheckBatch(id, s.seqLen); err != nil {
		return Batch{}, err
	}
	read, err := s.Read(ctx, tokens.Indices(id))
	if err != nil {
		return Batch{}, fmt.Errorf("read batch %v: %w", id, err)
	}
	return Batch{ID: id, Sequences: read}, nil
}
