package data

import (
	"context"
	"errors"
	"fmt"

	"github.com/psyche-go/psyche/core/assign"
	"github.com/psyche-go/psyche/files/data/preprocessed"
	"github.com/psyche-go/psyche/files/data/tokens"
	"github.com/psyche-go/psyche/files/data/web"
	"github.com/psyche-go/psyche/files/data/weighted"
	"github.com/psyche-go/psyche/record/config"
)

const maxMixSize = 1 << 20 // bytes of a mix's JSON file

// openMix opens the sources of a mix, and mixes them.
func openMix(ctx context.Context, at config.WeightedHTTPData, o Options) (*weighted.Mix, error) {
	text, err := web.Get(ctx, at.URL, maxMixSize, o.Web)
	if err != nil {
		return nil, err
	}
	mix, err := config.ParseMix(web.Redact(at.URL), text)
	if err != nil {
		return nil, err
	}
	var sources []weighted.Source
	var lengths []uint64
	closeAll := func(err error) error {
		for _, source := range sources {
			err = errors.Join(err, source.Close())
		}
		return err
	}
	for i, location := range mix.Sources {
		source, err := openHTTP(ctx, location, o)
		if err != nil {
			return nil, closeAll(fmt.Errorf("source %d of %s: %w", i, web.Redact(at.URL), err))
		}
		sources, lengths = append(sources, source), append(lengths, source.Len())
	}
	var shares []uint32
	if mix.Weights != nil {
		shares, err = weighted.Shares(mix.Weights)
	} else {
		shares, err = weighted.SharesOf(lengths)
	}
	if err != nil {
		return nil, closeAll(fmt.Errorf("%s: %w", web.Redact(at.URL), err))
	}
	mixed, err := weighted.New(sources, shares, mix.Shuffle.Seed)
	if err != nil {
		return nil, closeAll(fmt.Errorf("%s: %w", web.Redact(at.URL), err))
	}
	return mixed, nil
}

// MixedPlace is the location of a sequence in a mixture.
type MixedPlace struct {
	Source int
	tokens.Place
}

// MixOrder calls each with the location of each of n sequences of a mixture, starting at index
// first. url is the address of the mixture's JSON file.
func MixOrder(ctx context.Context, url string, o Options, first, n uint64, each func(index uint64, at MixedPlace) error) (err error) {
	mix, err := openMix(ctx, config.WeightedHTTPData{URL: url}, o)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, mix.Close()) }()
	for index := first; index-first < n; index++ {
		number, at := mix.At(index)
		source, ok := mix.Sources()[number].(interface{ Place(uint64) tokens.Place })
		if !ok {
			return fmt.Errorf("%w: the order of source %d of %s is unknown", errUnsupported, number, web.Redact(url))
		}
		if err := errors.Join(ctx.Err(), each(index, MixedPlace{number, source.Place(at)})); err != nil {
			return err
		}
	}
	return nil
}

// samples is the Provider of preprocessed samples.
type samples struct {
	*preprocessed.Dataset
	seqLen int
}

func openSamples(at config.PreprocessedData, o Options) (Provider, error) {
	dataset, err := preprocessed.Open(at.Path, preprocessed.Options{SeqLen: o.SeqLen, VocabSize: o.VocabSize})
	if err != nil {
		return nil, err
	}
	return samples{dataset, o.SeqLen}, nil
}

// Batch implements Provider.
func (s samples) Batch(ctx context.Context, id assign.BatchID) (Batch, error) {
	if err := tokens.CheckBatch(id, s.seqLen); err != nil {
		return Batch{}, err
	}
	read, err := s.Read(ctx, tokens.Indices(id))
	if err != nil {
		return Batch{}, fmt.Errorf("read batch %v: %w", id, err)
	}
	batch := Batch{ID: id, Sequences: make([][]int32, len(read))}
	for i, sample := range read {
		batch.Sequences[i] = sample.Tokens
		if sample.Labels != nil {
			batch.Labels = append(batch.Labels, sample.Labels)
		}
		if sample.Positions != nil {
			batch.Positions = append(batch.Positions, sample.Positions)
		}
	}
	if n := len(batch.Labels); n != 0 && n != len(read) || len(batch.Positions) != 0 && len(batch.Positions) != len(read) {
		return Batch{}, fmt.Errorf("read batch %v: %w: labels or position_ids are missing in some files but not in others", id, preprocessed.ErrInvalid)
	}
	return batch, nil
}
