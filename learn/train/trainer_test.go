package train

import (
	"context"
	"errors"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/psyche-go/psyche/base/golden"
	"github.com/psyche-go/psyche/core/assign"
	"github.com/psyche-go/psyche/core/codec"
	"github.com/psyche-go/psyche/files/checkpoint"
	"github.com/psyche-go/psyche/files/data"
	"github.com/psyche-go/psyche/learn/model"
	"github.com/psyche-go/psyche/learn/torch"
	"github.com/psyche-go/psyche/record/config"
)

const toyConfig = `{"architectures":["LlamaForCausalLM"],"model_type":"llama","vocab_size":128,"hidden_size":32,
"intermediate_size":64,"num_hidden_layers":2,"num_attention_heads":2,"num_key_value_heads":1,"max_position_embeddings":64,
"tie_word_embeddings":true}`

// toyQwen2 has biases.
var toyQwen2 = strings.NewReplacer("LlamaForCausalLM", "Qwen2ForCausalLM", `"llama"`, `"qwen2"`).Replace(toyConfig)

// requireTorch skips the test if libtorch is missing, unless PSYCHE_REQUIRE_TORCH is 1.
func requireTorch(t testing.TB) {
	t.Helper()
	err := torch.Load(torch.Options{Threads: 1})
	if torch.Missing(err) && os.Getenv("PSYCHE_REQUIRE_TORCH") != "1" {
		t.Skipf("needs libtorch: %v", err)
	}
	if err != nil {
		t.Fatal(err)
	}
}

func toyModel(t testing.TB, seed uint64) checkpoint.Snapshot {
	t.Helper()
	tensors, err := model.Init([]byte(toyConfig), seed)
	if err != nil {
		t.Fatal(err)
	}
	return checkpoint.Snapshot{Files: []checkpoint.File{{Name: "config.json", Data: []byte(toyConfig)}}, Tensors: tensors}
}

func toyOptions(t testing.TB) Options {
	t.Helper()
	requireTorch(t)
	return Options{
		Model: toyModel(t, 1),
		Optimizer: config.Optimizer{
			AdamW: &config.AdamW{Betas: [2]float64{0.9, 0.95}, Eps: 1e-8, WeightDecay: 0.1, ClipGradNorm: 1},
			Distro: &config.Distro{CompressionDecay: 0.9, CompressionTopK: 8, CompressionChunk: 16,
				Quantize1Bit: true, WeightDecay: 0.01, ClipGradNorm: 1},
		},
		LRSchedule: config.LRSchedule{Constant: &config.ConstantLR{BaseLR: 2e-3}},
		MicroBatch: 2,
		Threads:    1,
		RunID:      "toy",
		TrainerID:  [32]byte{1},
	}
}

func newTestTrainer(t testing.TB, change ...func(o *Options)) *Trainer {
	t.Helper()
	o := toyOptions(t)
	for _, c := range change {
		c(&o)
	}
	trainer, err := New(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := trainer.Close(); err != nil {
			t.Error(err)
		}
	})
	return trainer
}

const verse = "the quick brown fox jumps over the lazy dog; pack my box with five dozen liquor jugs. "

// toyBatch cuts sequences of 17 tokens from a repeated text.
func toyBatch(start, end uint64) data.Batch {
	text := strings.Repeat(verse, 3)
	batch := data.Batch{ID: assign.BatchID{Start: start, End: end}}
	for i := start; i < end; i++ {
		at := int(i*16) % len(verse)
		sequence := make([]int32, 17)
		for j := range sequence {
			sequence[j] = int32(text[at+j])
		}
		batch.Sequences = append(batch.Sequences, sequence)
	}
	return batch
}

func digest(t testing.TB, trainer interface {
	Snapshot(ctx context.Context) (checkpoint.Snapshot, error)
}) [32]byte {
	t.Helper()
	s, err := trainer.Snapshot(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Validate(); err != nil {
		t.Fatal(err)
	}
	return s.Manifest().Digest()
}

// TestReplicasStayEqual checks that replicas stay equal for ten steps. Two members train, a third
// only applies, and a fourth joins half way.
func TestReplicasStayEqual(t *testing.T) {
	members := []*Trainer{
		newTestTrainer(t),
		newTestTrainer(t, func(o *Options) { o.TrainerID, o.MicroBatch = [32]byte{2}, 3 }),
		newTestTrainer(t, func(o *Options) { o.TrainerID = [32]byte{3} }),
	}
	var first, last float64
	for step := uint32(1); step <= 10; step++ {
		var payloads [][]byte
		for i, member := range members[:2] {
			batch := toyBatch(uint64(step)*8+uint64(i)*4, uint64(step)*8+uint64(i)*4+4)
			payload, loss, err := member.Train(t.Context(), step, batch, nil)
			if err != nil {
				t.Fatal(err)
			}
			for _, other := range members {
				if err := other.Verify(payload, step, batch.ID, [32]byte{byte(i + 1)}); err != nil {
					t.Fatal(err)
				}
			}
			if step == 1 {
				first = loss
			}
			last = loss
			payloads = append(payloads, payload)
		}
		counted := step != 4 // the second member's result of step 4 is lost
		if !counted {
			payloads = payloads[:1]
		}
		for i, member := range members {
			if err := member.Apply(t.Context(), step, payloads, nil, i == 0 || counted); err != nil {
				t.Fatal(err)
			}
		}
		if step == 5 {
			s, err := members[0].Snapshot(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			joined := newTestTrainer(t, func(o *Options) { o.Model, o.TrainerID = toyModel(t, 99), [32]byte{4} })
			if err := joined.Load(t.Context(), s); err != nil {
				t.Fatal(err)
			}
			members = append(members, joined)
		}
		for i, member := range members[1:] {
			if digest(t, member) != digest(t, members[0]) {
				t.Fatalf("step %d: member %d differs", step, i+1)
			}
		}
	}
	if last > first-0.05 {
		t.Errorf("loss went from %.3f to %.3f", first, last)
	}
}

func TestCancelledTrainChangesNothing(t *testing.T) {
	trainer := newTestTrainer(t, func(o *Options) { o.MicroBatch = 1 })
	untouched := newTestTrainer(t, func(o *Options) { o.MicroBatch = 1 })
	for step := uint32(1); step <= 3; step++ {
		ctx := &cancelled{Context: t.Context(), left: int(step) + 1}
		if _, _, err := trainer.Train(ctx, step, toyBatch(0, 4), nil); !errors.Is(err, context.Canceled) {
			t.Fatalf("error = %v, want Canceled", err)
		}
		want, _, err := untouched.Train(t.Context(), step, toyBatch(4, 8), nil)
		if err != nil {
			t.Fatal(err)
		}
		got, _, err := trainer.Train(t.Context(), step, toyBatch(4, 8), nil)
		if err != nil {
			t.Fatal(err)
		}
		if string(got) != string(want) {
			t.Errorf("step %d: the cancelled batch shows in the next result", step)
		}
		for _, member := range []*Trainer{trainer, untouched} {
			if err := member.Apply(t.Context(), step, [][]byte{want}, nil, true); err != nil {
				t.Fatal(err)
			}
		}
	}
}

// cancelled is a context that is cancelled after a number of calls of Err.
type cancelled struct {
	context.Context
	left int
}

func (c *cancelled) Err() error {
	if c.left--; c.left < 0 {
		return context.Canceled
	}
	return nil
}

// TestMicroBatches checks that one pass and uneven parts have the same gradient, also for sequences
// of different lengths.
func TestMicroBatches(t *testing.T) {
	sequences := toyBatch(0, 5).Sequences
	sequences[3] = sequences[3][:6]
	var losses []float64
	var values [][][]float32
	for _, size := range []int{1, 2, 4, 100} {
		trainer := newTestTrainer(t, func(o *Options) { o.MicroBatch = size })
		err := trainer.gradient(t.Context(), data.Batch{Sequences: sequences}, func(_ *torch.Scope, loss float64, gradients []*torch.Tensor) error {
			losses = append(losses, loss)
			var copied [][]float32
			for _, gradient := range gradients {
				copied = append(copied, gradient.CopyFloat32s())
			}
			values = append(values, copied)
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	for i := range losses[1:] {
		if math.Abs(losses[i+1]-losses[0]) > 1e-5 {
			t.Errorf("losses %v", losses)
		}
		if far := farthest(values[i+1], values[0]); far > 1e-6 {
			t.Errorf("gradients differ by %v", far)
		}
	}
	if norm(values[0]) < 0.1 {
		t.Errorf("gradient norm is %v", norm(values[0]))
	}
	// The loss is the mean over tokens: the loss of each sequence, weighted by its length.
	trainer := newTestTrainer(t)
	want := 0.0
	for _, sequence := range sequences {
		loss, err := trainer.Evaluate(t.Context(), [][]int32{sequence})
		if err != nil {
			t.Fatal(err)
		}
		want += loss * float64(len(sequence)-1) / (4*16 + 5)
	}
	if math.Abs(losses[0]-want) > 1e-5 {
		t.Errorf("loss is %v, want %v", losses[0], want)
	}
}

func farthest(a, b [][]float32) float64 {
	far := 0.0
	for i := range a {
		for j := range a[i] {
			far = max(far, math.Abs(float64(a[i][j])-float64(b[i][j])))
		}
	}
	return far
}

func TestTrainRejects(t *testing.T) {
	trainer := newTestTrainer(t)
	before := digest(t, trainer)
	tests := []struct {
		name   string
		change func(b *data.Batch)
	}{
		{"token of another vocabulary", func(b *data.Batch) { b.Sequences[1][3] = 128 }},
		{"negative token", func(b *data.Batch) { b.Sequences[1][3] = -1 }},
		{"sequence missing", func(b *data.Batch) { b.Sequences = b.Sequences[:1] }},
		{"sequence too short", func(b *data.Batch) { b.Sequences[0] = b.Sequences[0][:1] }},
		{"sequence too long", func(b *data.Batch) { b.Sequences[0] = make([]int32, 66) }},
		{"empty batch", func(b *data.Batch) { b.Sequences, b.ID.End = nil, b.ID.Start }},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			batch := toyBatch(0, 2)
			test.change(&batch)
			if _, _, err := trainer.Train(t.Context(), 1, batch, nil); !errors.Is(err, errTokens) {
				t.Errorf("error = %v, want errTokens", err)
			} else {
				golden.Message(t, test.name, err)
			}
		})
	}
	if digest(t, trainer) != before {
		t.Error("weights changed")
	}
}

func TestVerifyAndApplyReject(t *testing.T) {
	trainer := newTestTrainer(t)
	other := newTestTrainer(t, func(o *Options) { o.RunID = "another" })
	batch := toyBatch(4, 6)
	payload, _, err := trainer.Train(t.Context(), 3, batch, nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := trainer.Verify(payload, 3, batch.ID, [32]byte{1}); err != nil {
		t.Fatal(err)
	}
	foreign, _, err := other.Train(t.Context(), 3, batch, nil)
	if err != nil {
		t.Fatal(err)
	}
	before := digest(t, trainer)
	verify := func(payload []byte, step uint32, id assign.BatchID, key [32]byte) error {
		return trainer.Verify(payload, step, id, key)
	}
	apply := func(step uint32, payloads ...[]byte) error {
		return trainer.Apply(t.Context(), step, payloads, nil, false)
	}
	errs := map[string]error{
		"verify other step":     verify(payload, 4, batch.ID, [32]byte{1}),
		"verify other batch":    verify(payload, 3, assign.BatchID{Start: 4, End: 7}, [32]byte{1}),
		"verify other trainer":  verify(payload, 3, batch.ID, [32]byte{2}),
		"verify other run":      verify(foreign, 3, batch.ID, [32]byte{1}),
		"verify truncated":      verify(payload[:len(payload)-1], 3, batch.ID, [32]byte{1}),
		"verify bytes too many": verify(append(payload[:len(payload):len(payload)], 0), 3, batch.ID, [32]byte{1}),
		"verify nothing":        verify(nil, 3, batch.ID, [32]byte{1}),
		"apply other step":      apply(4, payload),
		"apply other run":       apply(3, foreign),
		"apply twice the same":  apply(3, payload, payload),
		"apply garbage":         apply(3, payload, []byte("garbage")),
	}
	for name, err := range errs {
		if !errors.Is(err, ErrResult) {
			t.Errorf("%s: error = %v, want ErrResult", name, err)
		}
	}
	if digest(t, trainer) != before {
		t.Error("weights changed")
	}
	if err := apply(3, payload); err != nil {
		t.Error(err)
	}
	if err := apply(3, payload); !errors.Is(err, errStep) {
		t.Errorf("applied twice: error = %v, want errStep", err)
	}
}

func TestNonFiniteLossIsAnError(t *testing.T) {
	s := toyModel(t, 1)
	for i := range s.Tensors {
		if s.Tensors[i].Name == "model.norm.weight" {
			s.Tensors[i].Data[3] = 0x7f
			s.Tensors[i].Data[2] = 0x80 // infinity
		}
	}
	trainer := newTestTrainer(t, func(o *Options) { o.Model = s })
	if _, _, err := trainer.Train(t.Context(), 1, toyBatch(0, 2), nil); !errors.Is(err, errNotFinite) {
		t.Errorf("error = %v, want ErrNotFinite", err)
	}
}

func TestSnapshotRoundTrip(t *testing.T) {
	trainer := newTestTrainer(t)
	dir := filepath.Join(t.TempDir(), "model")
	if _, err := trainer.Step(t.Context(), 1, toyBatch(0, 2)); err != nil {
		t.Fatal(err)
	}
	s, err := trainer.Snapshot(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if err := checkpoint.WriteDir(dir, s); err != nil {
		t.Fatal(err)
	}
	stored, err := checkpoint.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	loaded := newTestTrainer(t, func(o *Options) { o.Model = stored })
	if digest(t, loaded) != digest(t, trainer) || s.Step != 1 {
		t.Error("the model changed on its way through a folder")
	}
	if _, err := trainer.Step(t.Context(), 2, toyBatch(2, 4)); err != nil {
		t.Fatal(err)
	}
	if digest(t, trainer) == digest(t, loaded) || s.Manifest().Digest() != digest(t, loaded) {
		t.Error("a snapshot shares memory with the model")
	}
}

// TestSnapshotNamesTheTypeOfItsWeights checks that the snapshot of a model whose config.json
// specifies bf16 specifies the actual type of the weights.
func TestSnapshotNamesTheTypeOfItsWeights(t *testing.T) {
	const key = `"torch_dtype": "bfloat16"`
	began := toyModel(t, 4)
	began.Files = slices.Clone(began.Files)
	config, _ := began.File(checkpoint.ConfigFile)
	at := slices.IndexFunc(began.Files, func(f checkpoint.File) bool { return f.Name == checkpoint.ConfigFile })
	began.Files[at].Data = []byte(strings.Replace(string(config), "{", "{"+key+", ", 1))
	trainer := newTestTrainer(t, func(o *Options) { o.Model = began })
	s, err := trainer.Snapshot(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if got, _ := s.File(checkpoint.ConfigFile); !strings.Contains(string(got), `"torch_dtype": "float32"`) || strings.Contains(string(got), "bfloat16") {
		t.Errorf("config.json is %s", got)
	}
	for name, snapshot := range map[string]checkpoint.Snapshot{"what it began with": began, "its own": s} {
		if err := trainer.Load(t.Context(), snapshot); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestLoadRejects(t *testing.T) {
	trainer := newTestTrainer(t)
	before := digest(t, trainer)
	tests := []struct {
		name   string
		change func(s *checkpoint.Snapshot)
	}{
		{"other config", func(s *checkpoint.Snapshot) { s.Files[0].Data = []byte(toyConfig + " ") }},
		{"no config", func(s *checkpoint.Snapshot) { s.Files = nil }},
		{"tensor missing", func(s *checkpoint.Snapshot) { s.Tensors = s.Tensors[1:] }},
		{"other shape", func(s *checkpoint.Snapshot) { s.Tensors[0].Shape = []int64{64, 64} }},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			s := toyModel(t, 5)
			test.change(&s)
			if err := trainer.Load(t.Context(), s); !errors.Is(err, errModel) {
				t.Errorf("error = %v, want errModel", err)
			}
			if digest(t, trainer) != before {
				t.Error("weights changed")
			}
		})
	}
}

func TestResetOptimizerForgets(t *testing.T) {
	trainer, fresh := newTestTrainer(t), newTestTrainer(t)
	if _, _, err := trainer.Train(t.Context(), 1, toyBatch(0, 2), nil); err != nil {
		t.Fatal(err)
	}
	if err := trainer.ResetOptimizer(t.Context()); err != nil {
		t.Fatal(err)
	}
	got, _, err := trainer.Train(t.Context(), 1, toyBatch(2, 4), nil)
	if err != nil {
		t.Fatal(err)
	}
	want, _, err := fresh.Train(t.Context(), 1, toyBatch(2, 4), nil)
	if err != nil {
		t.Fatal(err)
	}
	if string(got) != string(want) {
		t.Error("the result depends on training before the reset")
	}
}

func TestNewRejects(t *testing.T) {
	tests := []struct {
		name   string
		change func(o *Options)
	}{
		{"no micro-batch", func(o *Options) { o.MicroBatch = 0 }},
		{"no optimizer", func(o *Options) { o.Optimizer = config.Optimizer{} }},
		{"no schedule", func(o *Options) { o.LRSchedule = config.LRSchedule{} }},
		{"no config", func(o *Options) { o.Model.Files = nil }},
		{"tensor missing", func(o *Options) { o.Model.Tensors = o.Model.Tensors[1:] }},
		{"huge chunk", func(o *Options) { o.Optimizer.Distro.CompressionChunk = 60000 }},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			o := toyOptions(t)
			test.change(&o)
			_, err := New(t.Context(), o)
			golden.Message(t, test.name, err)
		})
	}
	for _, change := range []func(c *config.AdamW){
		func(c *config.AdamW) { c.Betas[1] = 1 },
		func(c *config.AdamW) { c.Eps = math.NaN() },
	} {
		o := toyOptions(t)
		change(o.Optimizer.AdamW)
		if _, err := NewAdamW(t.Context(), o); !errors.Is(err, errUnsupported) {
			t.Errorf("error = %v, want ErrUnsupported", err)
		}
	}
}

// TestLargeValuesWeighNoMore checks that the values of a result select coefficients and their
// proportions, but not the weight of the result.
func TestLargeValuesWeighNoMore(t *testing.T) {
	values := func(o *Options) { o.Optimizer.Distro.Quantize1Bit = false }
	sender, other := newTestTrainer(t, values), newTestTrainer(t, values, func(o *Options) { o.TrainerID = [32]byte{2} })
	first, _, err := sender.Train(t.Context(), 1, toyBatch(0, 2), nil)
	if err != nil {
		t.Fatal(err)
	}
	second, _, err := other.Train(t.Context(), 1, toyBatch(2, 4), nil)
	if err != nil {
		t.Fatal(err)
	}
	after := func(payloads ...[]byte) [32]byte {
		trainer := newTestTrainer(t, values)
		if err := trainer.Apply(t.Context(), 1, payloads, nil, false); err != nil {
			t.Fatal(err)
		}
		return digest(t, trainer)
	}
	want := after(first, second)
	for _, factor := range []float32{1 << 20, 1.0 / (1 << 20)} {
		if after(multiplied(t, sender, first, factor), second) != want {
			t.Errorf("a result times %g does something else to the model", factor)
		}
	}
	if after(multiplied(t, sender, first, -1), second) == want {
		t.Error("the opposite of a result does the same to the model")
	}
}

// multiplied returns a result with all its values multiplied by factor.
func multiplied(t *testing.T, trainer *Trainer, payload []byte, factor float32) []byte {
	t.Helper()
	header, results, err := trainer.Decode(payload)
	if err != nil {
		t.Fatal(err)
	}
	for i := range results {
		results[i].Values = slices.Clone(results[i].Values)
		for j := range results[i].Values {
			results[i].Values[j] *= factor
		}
	}
	rewritten, err := codec.Encode(header, trainer.distro().optimizer.results, false, results)
	if err != nil {
		t.Fatal(err)
	}
	return rewritten
}

// TestValuesAreBoundedWhereverTheyAreRead checks that each chunk of a result has the same weight,
// both when results are applied and when an audit undoes them.
func TestValuesAreBoundedWhereverTheyAreRead(t *testing.T) {
	trainer := newTestTrainer(t, func(o *Options) { o.Optimizer.Distro.Quantize1Bit = false })
	payload, _, err := trainer.Train(t.Context(), 1, toyBatch(0, 4), nil)
	if err != nil {
		t.Fatal(err)
	}
	results, err := trainer.reader.readAll(1, [][]byte{payload})
	if err != nil {
		t.Fatal(err)
	}
	for i, r := range results[0] {
		k := trainer.distro().optimizer.results[i].K
		for c, count := range r.Counts {
			if length := norm([][]float32{r.Values[c*k:][:count]}); count > 0 && math.Abs(length-1) > 1e-6 {
				t.Fatalf("tensor %d, chunk %d has the length %v", i, c, length)
			}
		}
	}
}
