package schedule

import (
	"errors"
	"fmt"
	"math"
	"strings"
	"testing"

	"github.com/psyche-go/psyche/base/golden"
	"github.com/psyche-go/psyche/record/config"
	"pgregory.net/rapid"
)

var schedules = []struct {
	name string
	lr   config.LRSchedule
	// want is the published formula in float64.
	want func(s float64) float64
	last uint32 // step after which the rate does not change
}{
	{
		"constant", config.LRSchedule{Constant: &config.ConstantLR{BaseLR: 4e-4, WarmupSteps: 10, WarmupInitLR: 1e-5}},
		func(s float64) float64 { return warm(s, 4e-4, 10, 1e-5, 4e-4) }, 10,
	},
	{
		"linear", config.LRSchedule{Linear: &config.LinearLR{BaseLR: 4e-4, WarmupSteps: 7, TotalSteps: 100, FinalLR: 4e-5}},
		func(s float64) float64 { return warm(s, 4e-4, 7, 0, line(s-7, 93, 4e-4, 4e-5)) }, 100,
	},
	{
		"cosine", config.LRSchedule{Cosine: &config.CosineLR{BaseLR: 4e-4, WarmupSteps: 25, TotalSteps: 150, FinalLR: 4e-5}},
		func(s float64) float64 { return warm(s, 4e-4, 25, 0, half(s-25, 125, 4e-4, 4e-5)) }, 150,
	},
	{
		"warmup-stable-decay", config.LRSchedule{WarmupStableDecay: &config.WarmupStableDecayLR{
			BaseLR: 2e-4, WarmupSteps: 20, StableSteps: 30, CosineDecaySteps: 40, CosineDecayFinalLR: 2e-5, LinearDecaySteps: 10, LinearDecayFinalLR: 1e-6,
		}},
		func(s float64) float64 {
			switch {
			case s < 50:
				return warm(s, 2e-4, 20, 0, 2e-4)
			case s < 90:
				return half(s-50, 40, 2e-4, 2e-5)
			default:
				return line(s-90, 10, 2e-5, 1e-6)
			}
		}, 100,
	},
}

func warm(s, base, steps, init, after float64) float64 {
	if s < steps {
		return init + (base-init)*s/steps
	}
	return after
}

func line(s, steps, from, to float64) float64 { return from + (to-from)*min(s/steps, 1) }

func half(s, steps, from, to float64) float64 {
	return to + (from-to)*0.5*(1+math.Cos(math.Pi*min(s/steps, 1)))
}

func TestFormulas(t *testing.T) {
	for _, test := range schedules {
		t.Run(test.name, func(t *testing.T) {
			s, err := New(test.lr)
			if err != nil {
				t.Fatal(err)
			}
			for step := range uint32(400) {
				got, want := float64(s.LR(step)), test.want(float64(step))
				if math.Abs(got-want) > 1e-7*want {
					t.Errorf("step %d: %v, want %v", step, got, want)
				}
				if step > test.last && s.LR(step) != s.LR(test.last) {
					t.Errorf("step %d: %v differs from the last rate %v", step, s.LR(step), s.LR(test.last))
				}
			}
			if s.LR(math.MaxUint32) != s.LR(test.last) {
				t.Error("changes at the last step of all")
			}
		})
	}
}

// TestGoldenBits checks the exact bits of the rates, which must be the same on every machine and
// never change.
func TestGoldenBits(t *testing.T) {
	var text strings.Builder
	for _, test := range schedules {
		s, err := New(test.lr)
		if err != nil {
			t.Fatal(err)
		}
		fmt.Fprintln(&text, test.name)
		for step := uint32(0); step <= 160; step += 5 {
			cold := ColdStart{Start: 3, Steps: 30}
			fmt.Fprintf(&text, "%4d %08x %08x\n", step, math.Float32bits(s.LR(step)), math.Float32bits(cold.LR(s, step)))
		}
	}
	golden.Compare(t, "rates.golden", text.String())
}

func TestHalfCosine(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		total := rapid.Uint32Range(1, math.MaxUint32).Draw(t, "total")
		step := rapid.Uint32Range(0, total-1).Draw(t, "step")
		got, want := halfCosine(step, total), 0.5*(1+math.Cos(math.Pi*float64(step)/float64(total)))
		if math.Abs(got-want) > 5e-16 {
			t.Fatalf("halfCosine(%d, %d) = %v, want %v", step, total, got, want)
		}
	})
}

func TestColdStart(t *testing.T) {
	tests := []struct {
		step uint32
		want float64
	}{{99, 1}, {100, 0}, {105, 0.5}, {109, 0.9}, {110, 1}, {200, 1}}
	for _, test := range tests {
		if got := (ColdStart{Start: 100, Steps: 10}).factor(test.step); got != test.want {
			t.Errorf("step %d: %v, want %v", test.step, got, test.want)
		}
	}
	if got := (ColdStart{}).factor(0); got != 1 {
		t.Errorf("no cold start: %v", got)
	}
	if got := (ColdStart{Start: math.MaxUint32 - 1, Steps: 10}).factor(math.MaxUint32); got != 0.1 {
		t.Errorf("at the last step of all: %v", got)
	}
}

func TestNewRejects(t *testing.T) {
	tests := []struct {
		name string
		lr   config.LRSchedule
	}{
		{"nothing set", config.LRSchedule{}},
		{"total before warmup", config.LRSchedule{Cosine: &config.CosineLR{BaseLR: 1, WarmupSteps: 5, TotalSteps: 5}}},
		{"negative rate", config.LRSchedule{Constant: &config.ConstantLR{BaseLR: -1}}},
		{"not a number", config.LRSchedule{Linear: &config.LinearLR{BaseLR: 1, TotalSteps: 5, FinalLR: math.NaN()}}},
		{"infinite", config.LRSchedule{Constant: &config.ConstantLR{BaseLR: math.Inf(1)}}},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			if _, err := New(test.lr); !errors.Is(err, errInvalid) {
				t.Errorf("error = %v, want ErrInvalid", err)
			}
		})
	}
}
