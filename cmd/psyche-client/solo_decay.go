package main

import (
	"errors"
	"fmt"
	"math"

	"github.com/psyche-go/psyche/record/config"
)

// wsd is the value of --lr-schedule for a warmup, a stable rate and a decay.
const wsd = "wsd"

// soloDecay are the flags of the decay of a WSD schedule. They have the names of the keys of a run.
type soloDecay struct {
	CosineDecaySteps   uint32   `placeholder:"N" help:"Steps of a cosine decay before the linear decay (wsd)." group:"Flags for --lr-schedule wsd:"`
	CosineDecayFinalLR *float64 `name:"cosine-decay-final-lr" placeholder:"LR" help:"Learning rate at the end of the cosine decay (wsd). Default: --final-lr, if no linear decay follows." group:"Flags for --lr-schedule wsd:"`
	LinearDecaySteps   *uint32  `placeholder:"N" help:"Steps of the linear decay, up to the last step (wsd). Default: 30 % of --steps, or 0 with --cosine-decay-steps." group:"Flags for --lr-schedule wsd:"`
}

// decayFlags are the flags of soloDecay.
var decayFlags = []string{"cosine-decay-steps", "cosine-decay-final-lr", "linear-decay-steps"}

// linearSteps returns the length of the linear decay in a training with the given number of steps.
func (d soloDecay) linearSteps(steps uint32) uint32 {
	switch {
	case d.LinearDecaySteps != nil:
		return *d.LinearDecaySteps
	case d.CosineDecaySteps > 0:
		return 0
	}
	return uint32(uint64(steps) * 3 / 10)
}

// checkDecay rejects decays that do not fit into the training, and rates that rise.
func (o soloOptimizer) checkDecay(steps uint32) error {
	if o.LRSchedule != wsd {
		return nil
	}
	var warmup uint32
	if o.WarmupSteps != nil {
		warmup = *o.WarmupSteps
	}
	linear := o.linearSteps(steps)
	if uint64(warmup)+uint64(o.CosineDecaySteps)+uint64(linear) > uint64(steps) {
		return usageError{fmt.Errorf("--warmup-steps %d, --cosine-decay-steps %d and --linear-decay-steps %d together exceed --steps %d: lower one of them", warmup, o.CosineDecaySteps, linear, steps)}
	}
	if o.CosineDecaySteps > 0 && linear > 0 && o.CosineDecayFinalLR == nil {
		return usageError{errors.New("--cosine-decay-steps before --linear-decay-steps needs --cosine-decay-final-lr")}
	}
	s := o.stableDecay(warmup, steps)
	if middle := s.CosineDecayFinalLR; math.IsNaN(middle) || middle > o.LR || s.LinearDecayFinalLR > middle {
		return usageError{fmt.Errorf("--lr %v, --cosine-decay-final-lr %v, --final-lr %v: want rates that do not rise", o.LR, middle, o.FinalLR)}
	}
	return nil
}

// stableDecay returns the WSD schedule of a training. Only a decay that has steps changes the rate.
func (o soloOptimizer) stableDecay(warmup, steps uint32) *config.WarmupStableDecayLR {
	linear := o.linearSteps(steps)
	s := &config.WarmupStableDecayLR{
		BaseLR: o.LR, WarmupSteps: warmup, StableSteps: steps - warmup - o.CosineDecaySteps - linear,
		CosineDecaySteps: o.CosineDecaySteps, CosineDecayFinalLR: o.LR,
		LinearDecaySteps: linear, LinearDecayFinalLR: o.FinalLR,
	}
	if o.CosineDecaySteps > 0 {
		s.CosineDecayFinalLR = o.FinalLR
		if o.CosineDecayFinalLR != nil {
			s.CosineDecayFinalLR = *o.CosineDecayFinalLR
		}
	}
	if linear == 0 {
		s.LinearDecayFinalLR = s.CosineDecayFinalLR
	}
	return s
}
