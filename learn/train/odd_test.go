package train

import (
	"testing"

	"github.com/psyche-go/psyche/core/audit"
	"github.com/psyche-go/psyche/record/config"
)

// TestAuditsPassOddConfigurations checks that honest rounds pass at once, without extra tolerance,
// at the limits of a run's configuration.
func TestAuditsPassOddConfigurations(t *testing.T) {
	byMuon := func(o *Options) { o.Optimizer.LocalSteps.InnerOptimizer = config.Muon }
	for _, c := range []struct {
		name      string
		model     string
		steps     uint16
		sequences uint64 // sequences per step
		rate      float64
		change    func(o *Options)
	}{
		{"one step", splitConfig, 1, 4, 1e-3, nil},
		{"96 steps", splitConfig, 96, 2, 1e-3, nil},
		{"steps of hardly a bit", splitConfig, 96, 2, 1e-7, nil},
		{"steps of less than a bit", splitConfig, 24, 4, 1e-9, func(o *Options) { o.Optimizer.LocalSteps.WeightDecay = 0 }},
		{"few tokens for each expert", toyQwen3MoE, 24, 2, 1e-3, nil},
		{"few tokens for each expert, by Muon", toyQwen3MoE, 8, 2, 1e-3, byMuon},
		{"experts with a correction", toyGLM4MoE, 8, 2, 1e-3, nil},
		{"an expert behind a gate, by Muon", toyQwen2MoE, 8, 2, 1e-3, byMuon},
		{"one step by Muon", splitConfig, 1, 4, 1e-3, byMuon},
		{"much decay, lag 2, by Muon", splitConfig, 24, 2, 1e-3, func(o *Options) {
			byMuon(o)
			o.Optimizer.LocalSteps.WeightDecay, o.Optimizer.LocalSteps.ApplyLag = 1, 2
		}},
		{"no first mean, much decay, lag 2", splitConfig, 24, 2, 1e-3, func(o *Options) {
			l := o.Optimizer.LocalSteps
			l.Betas, l.WeightDecay, l.ApplyLag = [2]float64{0, 0.9}, 1, 2
		}},
	} {
		a := newAuditedLocal(t, func(o *Options) {
			o.Model = snapshotOf(t, c.model)
			o.Optimizer.LocalSteps.InnerSteps, o.LRSchedule.Constant.BaseLR = c.steps, c.rate
			if c.change != nil {
				c.change(o)
			}
		})
		for step := uint32(1); step <= 3; step++ {
			n := uint64(c.steps) * c.sequences
			batch := toyBatch(uint64(step)*n, uint64(step+1)*n)
			payload, opening := a.round(step, batch, true, nil)
			if report := a.audit(step, batch, payload, opening); report.Judge(audit.LocalLimits) != audit.Passed {
				t.Errorf("%s, step %d: fault %v, error %v", c.name, step, report.Fault, report.Error)
			}
			a.applyOldest()
		}
	}
}
