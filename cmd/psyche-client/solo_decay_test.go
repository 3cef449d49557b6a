package main

import (
	"errors"
	"strings"
	"testing"

	"github.com/psyche-go/psyche/learn/train/schedule"
	"github.com/psyche-go/psyche/record/config"
)

// TestSoloStableDecay compares the WSD schedules of flags with the schedules of runs.
func TestSoloStableDecay(t *testing.T) {
	count, rate := func(n uint32) *uint32 { return &n }, func(lr float64) *float64 { return &lr }
	usual := soloOptimizer{LRSchedule: wsd, LR: 1e-3, FinalLR: 1e-4}
	for _, test := range []struct {
		name   string
		warmup *uint32
		decay  soloDecay
		want   config.WarmupStableDecayLR
		err    string // a part of the error
	}{
		{name: "default", want: config.WarmupStableDecayLR{WarmupSteps: 10, StableSteps: 60, CosineDecayFinalLR: 1e-3, LinearDecaySteps: 30, LinearDecayFinalLR: 1e-4}},
		{name: "linear", warmup: count(5), decay: soloDecay{LinearDecaySteps: count(95)}, want: config.WarmupStableDecayLR{WarmupSteps: 5, CosineDecayFinalLR: 1e-3, LinearDecaySteps: 95, LinearDecayFinalLR: 1e-4}},
		{name: "short warmup", decay: soloDecay{LinearDecaySteps: count(95)}, want: config.WarmupStableDecayLR{WarmupSteps: 5, CosineDecayFinalLR: 1e-3, LinearDecaySteps: 95, LinearDecayFinalLR: 1e-4}},
		{name: "no decay", decay: soloDecay{LinearDecaySteps: count(0)}, want: config.WarmupStableDecayLR{WarmupSteps: 10, StableSteps: 90, CosineDecayFinalLR: 1e-3, LinearDecayFinalLR: 1e-3}},
		{name: "cosine", decay: soloDecay{CosineDecaySteps: 20}, want: config.WarmupStableDecayLR{WarmupSteps: 10, StableSteps: 70, CosineDecaySteps: 20, CosineDecayFinalLR: 1e-4, LinearDecayFinalLR: 1e-4}},
		{name: "two decays", decay: soloDecay{20, rate(5e-4), count(30)}, want: config.WarmupStableDecayLR{WarmupSteps: 10, StableSteps: 40, CosineDecaySteps: 20, CosineDecayFinalLR: 5e-4, LinearDecaySteps: 30, LinearDecayFinalLR: 1e-4}},
		{name: "too long", decay: soloDecay{80, rate(5e-4), count(30)}, err: "--cosine-decay-steps 80 and --linear-decay-steps 30 together exceed --steps 100"},
		{name: "long warmup", warmup: count(71), err: "--warmup-steps 71"},
		{name: "no rate between", decay: soloDecay{CosineDecaySteps: 20, LinearDecaySteps: count(30)}, err: "needs --cosine-decay-final-lr"},
		{name: "rises", decay: soloDecay{20, rate(2e-3), count(30)}, err: "--cosine-decay-final-lr 0.002"},
		{name: "rises again", decay: soloDecay{20, rate(1e-5), count(30)}, err: "--final-lr 0.0001"},
	} {
		t.Run(test.name, func(t *testing.T) {
			o := usual
			o.WarmupSteps, o.soloDecay = test.warmup, test.decay
			err := o.checkDecay(100)
			if test.err != "" {
				if wrong, ok := errors.AsType[usageError](err); !ok || !strings.Contains(wrong.Error(), test.err) {
					t.Errorf("%v, want %s", err, test.err)
				}
				return
			}
			lr := o.schedule(o.warmup(defaultWarmup, 100), 100)
			if test.want.BaseLR = 1e-3; err != nil || *lr.WarmupStableDecay != test.want {
				t.Fatalf("%+v (%v), want %+v", *lr.WarmupStableDecay, err, test.want)
			}
			rates, err := schedule.New(lr)
			if err != nil || rates.LR(100) != float32(test.want.LinearDecayFinalLR) {
				t.Errorf("the last rate is %v (%v)", rates.LR(100), err)
			}
		})
	}
}
