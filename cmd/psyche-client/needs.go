package main

import (
	"cmp"
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/psyche-go/psyche/base/diskspace"
	"github.com/psyche-go/psyche/base/sysmemory"
	"github.com/psyche-go/psyche/core/coordinator"
	"github.com/psyche-go/psyche/files/checkpoint"
	"github.com/psyche-go/psyche/files/checkpoint/remote"
	"github.com/psyche-go/psyche/learn/memory"
	"github.com/psyche-go/psyche/learn/memory/fit"
	"github.com/psyche-go/psyche/learn/model"
	"github.com/psyche-go/psyche/record/config"
)

// configTimeout limits the wait for the model's description.
const configTimeout = 10 * time.Second

// weigh logs the needs of the run and the resources of this machine, and returns an error if the run
// certainly does not fit. Once a model may have been loaded, weigh returns no error, because that model
// already uses memory. If only members have the model, weigh cannot judge its needs, because the
// model's description is not known yet.
func (t *trainers) weigh(ctx context.Context, run config.Model, audited bool, from coordinator.Checkpoint, hosted string) error {
	first := !t.weighed
	t.weighed = true
	modelConfig, err := t.modelConfig(ctx, from, hosted)
	if err != nil {
		t.logger.Info("the run's needs are unknown until its model arrives", "reason", err)
		return nil
	}
	of, err := model.Describe(modelConfig)
	if err != nil {
		t.logger.Info("the run's needs are unknown until its model arrives", "reason", err)
		return nil
	}
	c, keep, has := t.command, -1, memory.Machine{Memory: sysmemory.Available(), Device: fit.Smallest(t.devices)}
	if c.CheckpointDir != "" {
		keep, has.Disk = c.KeepSteps, diskspace.Of(c.CheckpointDir)
	}
	training := memory.Training{Model: of.Memory(), Optimizer: run.Optimizer, Audited: audited, Keep: keep, Batch: c.batch(len(t.devices), run.MaxSeqLen)}
	n := training.Needs()
	n.Log(has, t.logger)
	most := has
	most.Memory = sysmemory.Allocatable()
	most.Disk = has.Disk.Plus(sizeOf(c.CheckpointDir))
	if err := n.Refusal(most, c.CheckpointDir); first && err != nil {
		return err
	}
	n.Warn(has, training.Remedy(""), t.logger)
	return nil
}

// sizeOf returns the size of the files in a folder in bytes.
func sizeOf(dir string) (bytes uint64) {
	_ = filepath.WalkDir(dir, func(_ string, entry fs.DirEntry, err error) error {
		if err != nil || !entry.Type().IsRegular() {
			return nil //nolint:nilerr // skip a file of unknown size
		}
		if info, err := entry.Info(); err == nil {
			bytes += uint64(info.Size())
		}
		return nil
	})
	return bytes
}

// batch returns how the command computes a micro batch of sequences with a number of tokens.
func (c *trainCommand) batch(devices int, tokens uint32) memory.Batch {
	return memory.Batch{
		Sequences: c.MicroBatchSize, Tokens: uint64(tokens), TwoBytes: c.twoBytes(), Recompute: c.Recompute,
		Devices: devices, Data: c.DataParallelism, Tensor: c.TensorParallelism,
	}
}

// modelConfig returns the config.json of the run's model, from the location of the starting model.
func (t *trainers) modelConfig(ctx context.Context, from coordinator.Checkpoint, hosted string) ([]byte, error) {
	kind := from.Kind
	if from.Origin != 0 {
		kind = from.Origin
	}
	dir := cmp.Or(t.command.ModelPath, hosted)
	if dir == "" && kind == coordinator.CheckpointLocal && t.command.AllowLocalPaths {
		dir = from.Repo
	}
	switch {
	case dir != "":
		return os.ReadFile(filepath.Join(dir, checkpoint.ConfigFile))
	case kind == coordinator.CheckpointHub:
		client, err := t.command.client(t.logger, t.command.AllowPrivateRepos)
		if err != nil {
			return nil, err
		}
		ctx, cancel := context.WithTimeout(ctx, configTimeout)
		defer cancel()
		return remote.HubRepo{Client: client, Repo: from.Repo, Revision: from.Revision}.Config(ctx)
	}
	return nil, errors.New("its members have the model")
}
