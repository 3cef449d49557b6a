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
	"github.com/psyche-go/psyche/learn/model"
	"github.com/psyche-go/psyche/learn/needs"
	"github.com/psyche-go/psyche/learn/torch"
	"github.com/psyche-go/psyche/record/required"
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
	if err := needs.Fits("the weights", uint64(checkpoint.TensorBytes(dir)), sysmemory.Allocatable()); err != nil {
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

// fittingDevices returns the devices for training, or an error if the memory of the CPU is too
// small. It warns if the memory is probably too small for a micro batch.
func (c *soloCommand) fittingDevices(of model.Description, logger *slog.Logger) ([]torch.Device, error) {
	devices, err := c.trainingDevices(c.deviceFlags)
	if err == nil && needs.LeastMemory(devices) == 0 { // on the CPU
		available := sysmemory.Allocatable()
		if err = c.fits(of.NumParameters, available); err == nil {
			c.warnOfMemory(of, available, logger)
		}
	}
	return devices, err
}

// warnOfMemory warns if training on the CPU probably needs more memory than is available.
func (c *soloCommand) warnOfMemory(of model.Description, available uint64, logger *slog.Logger) {
	s := needs.Step{MicroBatch: min(c.MicroBatch, c.TotalBatch), Size: required.Value, Recompute: c.Recompute, Flag: "--micro-batch"}
	if c.ComputeDtype != "f32" {
		s.Size = 2
	}
	working := s.Working(of, uint32(c.SeqLen))
	if wanted := c.optimizerBytes(of.NumParameters) + working; available > 0 && wanted > available {
		logger.Warn("the memory may be too small for the training; trying anyway", "needed", diskspace.Format(wanted), "of_a_micro_batch", diskspace.Format(working),
			"available", diskspace.Format(available), "instead", s.Remedy(of, uint32(c.SeqLen))+"end other programs")
	}
}

// optimizerBytes returns the memory of the gradient and the optimizer's values.
func (c *soloCommand) optimizerBytes(parameters int64) uint64 {
	values := uint64(2)
	if c.Optimizer == "adamw" {
		values = 3
	}
	return values * min(weightBytes(parameters), math.MaxUint64/values)
}

// fitsDisk returns an error if --save has too little space for a checkpoint. An earlier checkpoint stays until the new one
// is complete.
func (c *soloCommand) fitsDisk(parameters int64, probe diskspace.Probe) error {
	if c.Save == "" {
		return nil
	}
	values := uint64(2) // weight and momentum
	if c.Optimizer == "adamw" {
		values = 3
	}
	bytes := weightBytes(parameters)
	if bytes < math.MaxUint64/values {
		bytes *= values
	}
	_ = checkpoint.RemoveUnfinishedOf(c.Save) // remains take space; the check reports what is still missing
	if err := diskspace.Check(c.Save, "the weights and the optimizer's state of a checkpoint", bytes, probe); err != nil {
		return fmt.Errorf("--save: %w, choose another folder, or omit --save", err)
	}
	return nil
}

// fits returns an error if the memory that training on the CPU takes is not available. The model itself
// was already read and is not included.
func (c *soloCommand) fits(parameters int64, available uint64) error {
	kind := "the gradient and the momentum"
	if c.Optimizer == "adamw" {
		kind = "the gradient and the means of AdamW"
	}
	err := needs.Fits(kind, c.optimizerBytes(parameters), available)
	if err != nil {
		err = fmt.Errorf("train %s: %w, or choose another --device", c.Model, err)
	}
	return err
}
