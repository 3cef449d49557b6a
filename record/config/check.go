package config

import (
	"errors"
	"fmt"
	"math"

	"github.com/psyche-go/psyche/base/identity"
)

// ErrInvalidModel means that a model definition contains invalid values.
var ErrInvalidModel = errors.New("invalid model definition")

// fault is an error in one key of a definition.
type fault struct{ key, text string }

// faults contains the errors in the keys of one table.
type faults []fault

func (f *faults) add(key, format string, args ...any) {
	*f = append(*f, fault{key: key, text: fmt.Sprintf(format, args...)})
}

func (f *faults) text(key, value string, limit int) {
	if value == "" || len(value) > limit {
		f.add(key, "want a string of 1 to %d bytes", limit)
	}
}

func (f *faults) notNegative(key string, value float64) {
	if math.Signbit(value) || math.IsInf(value, 0) || math.IsNaN(value) {
		f.add(key, "%g is out of range, want a finite number of at least 0", value)
	}
}

// report adds found to the errors of the table that the values come from, unless reading the values
// has already failed.
func (t *table) report(failedBefore int, found faults) {
	if len(t.problems) > failedBefore {
		return
	}
	for _, fault := range found {
		t.fail(fault.key, "%s", fault.text)
	}
}

// check returns the errors in a definition that was not read from a file.
func (m Model) check() error {
	var found faults
	switch m.Architecture {
	case HfLlama, HfDeepseek, HfAuto, Torchtitan:
	default:
		found.add("Architecture", "unknown value %q", m.Architecture)
	}
	if m.DataType != Pretraining && m.DataType != Finetuning {
		found.add("DataType", "unknown value %q", m.DataType)
	}
	if m.MaxSeqLen == 0 || m.MaxSeqLen > maxSeqLen {
		found.add("MaxSeqLen", "%d is out of range, want 1 to %d", m.MaxSeqLen, maxSeqLen)
	}
	if len(m.DataLocations) == 0 || len(m.DataLocations) > maxLocations {
		found.add("DataLocations", "%d locations, want 1 to %d", len(m.DataLocations), maxLocations)
	}
	for _, location := range m.DataLocations {
		found = append(found, location.check()...)
	}
	found = append(found, m.Checkpoint.check()...)
	found = append(found, m.LRSchedule.check()...)
	found = append(found, m.Optimizer.check()...)
	errs := make([]error, len(found))
	for i, fault := range found {
		errs[i] = fmt.Errorf("%w: %s: %s", ErrInvalidModel, fault.key, fault.text)
	}
	return errors.Join(errs...)
}

// largestUsualLR is much larger than every learning rate in use with AdamW or DisTrO. With both, a
// step changes each weight by about the learning rate.
const largestUsualLR = 0.1

// warnings returns a warning for each setting that is valid but probably a mistake.
func (m Model) warnings() []string {
	if base := m.LRSchedule.base(); base > largestUsualLR && m.Optimizer.Dummy == nil {
		return []string{fmt.Sprintf("[model.LLM.lr_schedule] base_lr = %g: a step moves each weight by about as much, which no model bears; 0.0001 to 0.01 is usual", base)}
	}
	return nil
}

// exactlyOne adds a fault unless exactly one of the cases is set.
func (f *faults) exactlyOne(key string, set ...bool) {
	count := 0
	for _, is := range set {
		if is {
			count++
		}
	}
	if count != 1 {
		f.add(key, "%d kinds are set, want exactly one", count)
	}
}

func (l DataLocation) check() faults {
	var f faults
	f.exactlyOne("DataLocation", l.Dummy != nil, l.Server != nil, l.Local != nil, l.HTTP != nil, l.WeightedHTTP != nil, l.Preprocessed != nil)
	if l.Server != nil {
		f.text("Server", l.Server.Addr, maxName)
		if _, err := identity.ParseID(l.Server.Key); l.Server.Key != "" && err != nil {
			f.add("Server", "key: %v", err)
		}
	}
	if l.Local != nil {
		f.text("Local", l.Local.Path, maxURL)
	}
	if l.WeightedHTTP != nil {
		f.text("WeightedHttp", l.WeightedHTTP.URL, maxURL)
	}
	if l.Preprocessed != nil {
		f.text("Preprocessed", l.Preprocessed.Path, maxURL)
	}
	if l.HTTP == nil {
		return f
	}
	at := l.HTTP.Location
	f.exactlyOne("Http location", at.SingleURL != nil, at.NumberedFiles != nil, at.Gcp != nil, at.URLs != nil)
	if at.SingleURL != nil {
		f.text("SingleUrl", *at.SingleURL, maxURL)
	}
	if at.URLs != nil && (len(at.URLs) == 0 || len(at.URLs) > maxURLs) {
		f.add("Urls", "%d addresses, want 1 to %d", len(at.URLs), maxURLs)
	}
	for _, address := range at.URLs {
		f.text("Urls", address, maxURL)
	}
	if at.NumberedFiles != nil {
		f = append(f, at.NumberedFiles.check()...)
	}
	if at.Gcp != nil {
		f.text("bucket_name", at.Gcp.BucketName, maxName)
		if len(at.Gcp.FilterDirectory) > maxURL {
			f.add("filter_directory", "longer than %d bytes", maxURL)
		}
	}
	return f
}

func (n NumberedFiles) check() faults {
	var f faults
	f.text("url_template", n.URLTemplate, maxName)
	if !hasPlaceholder(n.URLTemplate) {
		f.add("url_template", "%q must have exactly one {}, where the number goes", n.URLTemplate)
	}
	if n.NumFiles == 0 {
		f.add("num_files", "is 0, want at least 1")
	}
	return f
}

func (c Checkpoint) check() faults {
	var f faults
	f.exactlyOne("Checkpoint", c.Hub != nil, c.P2P != nil, c.Gcs != nil, c.P2PGcs != nil, c.Local != nil, c.Dummy != nil)
	for _, repo := range []*HubRepo{c.Hub, c.P2P} {
		if repo != nil {
			f.text("repo_id", repo.RepoID, maxName)
		}
	}
	for _, repo := range []*GcsRepo{c.Gcs, c.P2PGcs} {
		if repo != nil {
			f.text("bucket", repo.Bucket, maxName)
		}
	}
	if c.Local != nil {
		f.text("path", c.Local.Path, maxURL)
	}
	return f
}

func (s LRSchedule) check() faults {
	var f faults
	f.exactlyOne("LRSchedule", s.Constant != nil, s.Linear != nil, s.Cosine != nil, s.WarmupStableDecay != nil)
	if s.Constant != nil {
		f.notNegative("base_lr", s.Constant.BaseLR)
		f.notNegative("warmup_init_lr", s.Constant.WarmupInitLR)
	}
	if s.Linear != nil {
		f = append(f, checkDecay(CosineLR(*s.Linear))...)
	}
	if s.Cosine != nil {
		f = append(f, checkDecay(*s.Cosine)...)
	}
	if s.WarmupStableDecay != nil {
		f = append(f, s.WarmupStableDecay.check()...)
	}
	return f
}

// checkDecay checks a schedule that decays from the end of the warm-up to TotalSteps.
func checkDecay(s CosineLR) faults {
	var f faults
	f.notNegative("base_lr", s.BaseLR)
	f.notNegative("warmup_init_lr", s.WarmupInitLR)
	f.notNegative("final_lr", s.FinalLR)
	if s.TotalSteps <= s.WarmupSteps {
		f.add("total_steps", "%d is not more than warmup_steps = %d", s.TotalSteps, s.WarmupSteps)
	}
	return f
}

func (s WarmupStableDecayLR) check() faults {
	var f faults
	f.notNegative("warmup_init_lr", s.WarmupInitLR)
	f.notNegative("base_lr", s.BaseLR)
	f.notNegative("cosine_decay_final_lr", s.CosineDecayFinalLR)
	f.notNegative("linear_decay_final_lr", s.LinearDecayFinalLR)
	if s.CosineDecayFinalLR > s.BaseLR {
		f.add("cosine_decay_final_lr", "%g is more than base_lr = %g", s.CosineDecayFinalLR, s.BaseLR)
	}
	if s.LinearDecayFinalLR > s.CosineDecayFinalLR {
		f.add("linear_decay_final_lr", "%g is more than cosine_decay_final_lr = %g", s.LinearDecayFinalLR, s.CosineDecayFinalLR)
	}
	total := uint64(s.WarmupSteps) + uint64(s.StableSteps) + uint64(s.CosineDecaySteps) + uint64(s.LinearDecaySteps)
	if total > math.MaxUint32 {
		f.add("stable_steps", "all steps together are %d, more than a run can have", total)
	}
	return f
}

func (o Optimizer) check() faults {
	var f faults
	f.exactlyOne("Optimizer", o.AdamW != nil, o.Distro != nil, o.Dummy != nil, o.LocalSteps != nil)
	if o.AdamW != nil {
		f = append(f, o.AdamW.check()...)
	}
	if o.Distro != nil {
		f = append(f, o.Distro.check()...)
	}
	if o.LocalSteps != nil {
		f = append(f, o.LocalSteps.check()...)
	}
	return f
}

// maxValueBits is the maximum number of bits of a value in the results of local steps.
const maxValueBits = 4

func (l LocalSteps) check() faults {
	f := l.Inner().check()
	if l.InnerSteps == 0 {
		f.add("inner_steps", "is 0, want at least 1; 30 to 100 is usual")
	}
	if l.InnerOptimizer != "" && l.InnerOptimizer != Muon {
		f.add("inner_optimizer", "%q is not known, want %q or %q", l.InnerOptimizer, AdamWName, Muon)
	}
	if !(l.OuterLR > 0 && l.OuterLR <= MaxOuterLR) {
		f.add("outer_lr", "%g is out of range, want more than 0, at most %d; 1 is usual", l.OuterLR, MaxOuterLR)
	}
	if !(l.OuterMomentum >= 0 && l.OuterMomentum < 1) {
		f.add("outer_momentum", "%g is out of range, want at least 0 and less than 1", l.OuterMomentum)
	}
	f.notNegative("error_decay", l.ErrorDecay)
	if l.ErrorDecay > 1 {
		f.add("error_decay", "%g is out of range, want 0 to 1", l.ErrorDecay)
	}
	if l.ValueBits < 1 || l.ValueBits > maxValueBits {
		f.add("value_bits", "%d is out of range, want 1 to %d; 2 is usual", l.ValueBits, maxValueBits)
	}
	return append(f, checkCompression(l.CompressionTopK, l.CompressionChunk, l.ApplyLag)...)
}

// checkCompression checks the keys of an optimizer that exchanges the largest coefficients of each
// chunk.
func checkCompression(topK, chunk uint16, lag uint8) faults {
	var f faults
	if topK == 0 {
		f.add("compression_topk", "is 0, want at least 1")
	}
	if chunk < 1 || chunk > maxChunk {
		f.add("compression_chunk", "%d is out of range, want 1 to %d; 64 is usual", chunk, maxChunk)
	}
	if lag > MaxApplyLag {
		f.add("apply_lag", "%d is out of range, want 1 or 2", lag)
	}
	return f
}

func (a AdamW) check() faults {
	var f faults
	f.notNegative("weight_decay", a.WeightDecay)
	f.notNegative("eps", a.Eps)
	f.notNegative("clip_grad_norm", a.ClipGradNorm)
	for _, beta := range a.Betas {
		if !(beta >= 0 && beta < 1) || math.Signbit(beta) {
			f.add("betas", "%g is out of range, want at least 0 and less than 1", beta)
		}
	}
	return f
}

// maxChunk is the largest chunk size for which the optimizer has tables.
const maxChunk = 128

func (d Distro) check() faults {
	var f faults
	f.notNegative("clip_grad_norm", d.ClipGradNorm)
	f.notNegative("weight_decay", d.WeightDecay)
	f.notNegative("compression_decay", d.CompressionDecay)
	if d.CompressionDecay > 1 {
		f.add("compression_decay", "%g is out of range, want 0 to 1", d.CompressionDecay)
	}
	return append(f, checkCompression(d.CompressionTopK, d.CompressionChunk, d.ApplyLag)...)
}
