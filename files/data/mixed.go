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
func openMix(ctx context.Context, at config.WeightedHTTPData, o Options) (reader, error) {
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

// samples is the Provider of ready-made samples.
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
		return Batch{}, fmt.Errorf("read batch %v: %w: only some of the files have labels or position_ids", id, preprocessed.ErrInvalid)
	}
	return batch, nil
}
