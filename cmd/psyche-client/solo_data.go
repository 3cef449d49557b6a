package main

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"log/slog"
	"math"

	"github.com/psyche-go/psyche/base/diskspace"
	"github.com/psyche-go/psyche/base/meter"
	"github.com/psyche-go/psyche/base/sysmemory"
	"github.com/psyche-go/psyche/files/checkpoint"
	"github.com/psyche-go/psyche/files/data/local"
	"github.com/psyche-go/psyche/learn/memory"
	"github.com/psyche-go/psyche/learn/memory/fit"
	"github.com/psyche-go/psyche/learn/model"
	"github.com/psyche-go/psyche/learn/torch"
)

// readModel reads the model of --model.
func readModel(ctx context.Context, t terminal, name string) (checkpoint.Snapshot, error) {
	dir, err := modelFolder(ctx, t, name)
	if err != nil {
		return checkpoint.Snapshot{}, err
	}
	s, err := readFolder(t, dir)
	if err != nil {
		return s, err
	}
	return s, compareDigest(dir, s)
}

// compareDigest compares a model with the digest that the checkpoint of a run records.
func compareDigest(dir string, s checkpoint.Snapshot) error {
	facts, err := checkpoint.ReadFacts(dir)
	if errors.Is(err, checkpoint.ErrNoFacts) {
		return nil
	}
	if err != nil {
		return err
	}
	if digest := fmt.Sprintf("%x", s.Manifest().Digest()); digest != facts.Digest {
		return fmt.Errorf("%w: %s has the digest %.16s, but %s records %.16s: a file is damaged or was changed; get the model again, or remove %[4]s if you changed the model", checkpoint.ErrInvalid, dir, digest, checkpoint.FactsFile, facts.Digest)
	}
	return nil
}

// readFolder reads a model, and prints the progress.
func readFolder(t terminal, dir string) (checkpoint.Snapshot, error) {
	if err := memory.Fits("the weights", uint64(checkpoint.TensorBytes(dir)), sysmemory.Allocatable()); err != nil {
		return checkpoint.Snapshot{}, fmt.Errorf("read %s: %w, or choose a smaller model", dir, err)
	}
	m := meter.New(t.Err, "psyche-client: reading the model")
	defer m.Done()
	s, err := checkpoint.ReadDirWatched(dir, m.At)
	if err == nil {
		warnOfTokens(s, dir, t.logger())
	}
	return s, err
}

// openData opens the training data and the held-out data.
func (s *solo) openData(ctx context.Context, description model.Description) (err error) {
	c := &s.options
	if c.SeqLen > description.MaxTokens {
		return fmt.Errorf("--seq-len %d: the model's max_position_embeddings is %d", c.SeqLen, description.MaxTokens)
	}
	options := local.Options{SeqLen: c.SeqLen, TokenSize: c.TokenSize, VocabSize: description.VocabSize}
	if c.HeldOut != "" {
		if err := s.readHeldOut(ctx, options); err != nil {
			return err
		}
	}
	if c.Shuffle != 0 {
		options.Seed = new([32]byte)
		binary.LittleEndian.PutUint64(options.Seed[:], c.Shuffle)
	}
	s.data, err = local.Open(c.DataPath, options)
	return err
}

// readHeldOut reads the held-out data. Without --token-size, its token size may differ from the
// training data's.
func (s *solo) readHeldOut(ctx context.Context, o local.Options) (err error) {
	if s.heldOut, err = local.ReadSample(ctx, s.options.HeldOut, o, s.options.HeldOutSequences); err != nil {
		return err
	}
	s.printf("held out: %s\n", s.heldOut)
	return nil
}

// training describes the training on a number of devices.
func (c *soloCommand) training(of memory.Model, devices int) memory.Training {
	return memory.Training{
		Model: of, Optimizer: c.optimizer(), Alone: true, Keep: -1,
		Batch: memory.Batch{
			Sequences: min(c.MicroBatch, c.TotalBatch), Tokens: uint64(c.SeqLen), TwoBytes: c.twoBytes(), Recompute: c.Recompute,
			Devices: devices, Data: c.DataParallelism, Tensor: c.TensorParallelism,
		},
	}
}

// microBatchFlag is the flag of solo that sets the sequences of a micro batch.
const microBatchFlag = "--micro-batch"

// fittingDevices returns the devices for the training, or an error if their memory, or the memory of the CPU, is too
// small. It warns if the memory is probably too small for a micro batch.
func (c *soloCommand) fittingDevices(of model.Description, logger *slog.Logger) ([]torch.Device, error) {
	devices, err := c.trainingDevices(c.deviceFlags)
	if err != nil {
		return nil, err
	}
	training := c.training(of.Memory(), len(devices))
	available := fit.Smallest(devices)
	if len(devices) == 0 {
		available = sysmemory.Allocatable()
	}
	if err := c.fits(training, available); err != nil {
		return nil, err
	}
	c.warnOfMemory(training, available, logger)
	return devices, nil
}

// warnOfMemory warns if the training probably needs more memory than is available.
func (c *soloCommand) warnOfMemory(of memory.Training, available uint64, logger *slog.Logger) {
	if wanted := more(of, of.Needs().Total()); available > 0 && wanted > available {
		logger.Warn("the memory may be too small for the training; trying anyway", "needed", diskspace.Format(wanted), "of_a_micro_batch", diskspace.Format(of.Working()),
			"available", diskspace.Format(available), "instead", of.Remedy(microBatchFlag)+"end other programs")
	}
}

// more returns the part of a total that is not allocated yet when the model was read: on the CPU all except the
// weights.
func more(of memory.Training, total uint64) uint64 {
	if of.Batch.Devices > 0 || total == math.MaxUint64 {
		return total
	}
	return total - of.Model.Weights()
}

// fitsDisk returns an error if --save has too little space for a checkpoint. An earlier checkpoint stays until the new one
// is complete.
func (c *soloCommand) fitsDisk(of memory.Model, probe diskspace.Probe) error {
	if c.Save == "" {
		return nil
	}
	_ = checkpoint.RemoveUnfinishedOf(c.Save) // remains take space; the check reports what is still missing
	if err := diskspace.Check(c.Save, "the weights and the optimizer's state of a checkpoint", c.training(of, 0).Checkpoint(), probe); err != nil {
		return fmt.Errorf("--save: %w, choose another folder, or omit --save", err)
	}
	return nil
}

// fits returns an error if the memory that the training certainly takes is not available.
func (c *soloCommand) fits(of memory.Training, available uint64) error {
	if of.Batch.Devices > 0 {
		return of.Needs().Refusal(memory.Machine{Device: available}, "")
	}
	kind := "the gradient and the momentum"
	if c.Optimizer == "adamw" {
		kind = "the gradient and the means of AdamW"
	}
	err := memory.Fits(kind, more(of, of.Needs().LeastMemory), available)
	if err != nil {
		err = fmt.Errorf("train %s: %w, or choose another --device", c.Model, err)
	}
	return err
}
