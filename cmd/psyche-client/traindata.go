package main

import (
	"context"
	"slices"

	"github.com/psyche-go/psyche/config"
	"github.com/psyche-go/psyche/data"
	"github.com/psyche-go/psyche/model"
	"github.com/psyche-go/psyche/objstore"
	"github.com/psyche-go/psyche/objstore/gcs"
)

// namesFolders reports whether a run's data lies in folders of this machine.
func namesFolders(locations []config.DataLocation) bool {
	return slices.ContainsFunc(locations, func(l config.DataLocation) bool { return l.Local != nil || l.Preprocessed != nil })
}

// dataOptions says how the run's data is read.
func (f *trainerFactory) dataOptions(run config.Model, description model.Description) data.Options {
	return data.Options{
		SeqLen:    int(run.MaxSeqLen),
		VocabSize: description.VocabSize,
		Path:      f.command.DataPath,
		Logger:    f.logger,
		// Whoever set up the run names the bucket: what one's own credentials open is
		// read only if one says so.
		Bucket: func(ctx context.Context, name string) (objstore.Store, error) {
			return gcs.Open(ctx, name, gcs.Options{Credentials: f.command.GCSCredentials})
		},
	}
}
