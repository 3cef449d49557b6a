package generate_test

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
	"github.com/psyche-go/psyche/files/safetensors"
	"github.com/psyche-go/psyche/learn/model"
	"github.com/psyche-go/psyche/learn/model/generate"
	"github.com/psyche-go/psyche/learn/model/kvcache"
	"github.com/psyche-go/psyche/learn/torch"
	"github.com/psyche-go/psyche/learn/torch/torchtest"
)

// greedy takes the most likely token always.
var greedy = generate.Options{MaxTokens: 40, TopP: 1, RepetitionPenalty: 1}

// read makes the model of a folder of reference values, with a shorter context than it has.
func read(t *testing.T, e *torch.Engine, folder, context, shorter string, o model.Options) model.Model {
	t.Helper()
	const field = `"max_position_embeddings": `
	return readWith(t, e, folder, o, field+context, field+shorter)
}

// readWith makes the model of a folder of reference values, with other words in its config, each behind what it stands for.
func readWith(t *testing.T, e *torch.Engine, folder string, o model.Options, words ...string) model.Model {
	t.Helper()
	config, err := os.ReadFile(filepath.Join("..", folder, "config.json"))
	if err != nil {
		t.Fatal(err)
	}
	tensors, _, err := safetensors.Read(filepath.Join("..", folder, "vectors.safetensors"))
	if err != nil {
		t.Fatal(err)
	}
	var weights []safetensors.Tensor
	for _, tensor := range tensors {
		if name, ok := strings.CutPrefix(tensor.Name, "weight/"); ok {
			tensor.Name = name
			weights = append(weights, tensor)
		}
	}
	text := strings.NewReplacer(words...).Replace(string(config))
	if text == string(config) {
		t.Fatal("the config differs")
	}
	m, err := model.New(t.Context(), e, []byte(text), o, weights)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := m.Close(lasting(t)); err != nil {
			t.Error(err)
		}
	})
	return m
}

// lasting outlives the test, for what is done after it.
func lasting(t *testing.T) context.Context { return context.WithoutCancel(t.Context()) }

// forward returns the logits of the token after ids, computed without a cache.
func forward(t *testing.T, m model.Model, ids []int32) (logits []float32) {
	t.Helper()
	torchtest.Do(t, m.Engine(), false, func(s *torch.Scope) error {
		n := int64(len(ids))
		logits = m.Forward(s, s.FromInt32s(ids, 1, n)).Narrow(1, n-1, 1).Contiguous().CopyFloat32s()
		return nil
	})
	return logits
}

func write(t *testing.T, m model.Model, prompt []int32, o generate.Options) []int32 {
	t.Helper()
	var out []int32
	err := generate.Tokens(t.Context(), m, prompt, o, func(id int32) error {
		out = append(out, id)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return out
}

var models = []struct{ folder, context string }{
	{"llama/testdata/gqa", "256"},
	{"llama/testdata/llama3", "256"},
	{"llama/testdata/tied", "256"},
	{"llama/testdata/biases", "256"},
	{"llama/testdata/mistral", "256"},
	{"llama/testdata/qwen2", "256"},
	{"llama/testdata/mistral_window", "128"},
	{"llama/testdata/qwen3", "128"},
	{"llama/testdata/qwen3_moe", "128"},
	{"llama/testdata/mixtral", "128"},
	{"llama/testdata/olmo2", "128"},
	{"llama/testdata/gemma2", "128"},
	{"llama/testdata/gemma3", "128"},
	{"llama/testdata/smollm3", "128"},
	{"llama/testdata/phi3", "128"},
	{"llama/testdata/phi3_part", "128"},
	{"llama/testdata/gpt_oss", "128"},
	{"llama/testdata/gpt_oss_odd", "128"},
	{"llama/testdata/gemma", "128"},
	{"llama/testdata/llama4", "128"},
	{"llama/testdata/llama4_odd", "128"},
	{"llama/testdata/granite", "128"},
	{"llama/testdata/qwen2_moe", "128"},
	{"llama/testdata/olmo3", "128"},
	{"llama/testdata/olmoe", "128"},
	{"llama/testdata/glm", "128"},
	{"llama/testdata/glm4", "128"},
	{"llama/testdata/glm4_moe", "128"},
	{"llama/testdata/minimax_m2", "128"},
	{"llama/testdata/seed_oss", "128"},
	{"deepseek/testdata/v2-lite", "160"},
	{"deepseek/testdata/v2-grouped", "160"},
	{"deepseek/testdata/v3", "160"},
	{"deepseek/testdata/v3-halves", "160"},
	{"deepseek/testdata/kimi-k2", "160"},
}

// lengthened turns otherwise in texts of more than 16 tokens, for which a cache of the first is of no use.
var lengthened = []struct{ folder, context string }{{"llama/testdata/phi3_longrope", "128"}}

// With a cache a model writes what it writes without, also beyond its longest sequence.
func TestCacheChangesNothing(t *testing.T) {
	e := torchtest.Engine(t)
	prompt := []int32{3, 1, 4, 1, 5}
	for _, test := range slices.Concat(models, lengthened) {
		t.Run(test.folder, func(t *testing.T) {
			for _, longest := range []int{24, 100} {
				m := read(t, e, test.folder, test.context, map[int]string{24: "24", 100: "100"}[longest], model.Options{})
				before := torch.LiveTensors()
				got := write(t, m, prompt, greedy)
				if live := torch.LiveTensors(); live > before+4 { // the rotary tables stay, of which Gemma 3 has four
					t.Errorf("%d tensors are left", live-before)
				}
				text := slices.Clone(prompt)
				window := 0 // first token that the model sees
				for i, id := range got {
					logits := forward(t, m, text[window:])
					best := slices.Index(logits, slices.Max(logits))
					if int32(best) != id {
						t.Fatalf("token %d is %d, without a cache %d", i, id, best)
					}
					if text = append(text, id); len(text)-window > longest {
						window = len(text) - longest/2
					}
				}
				if len(got) != greedy.MaxTokens {
					t.Errorf("%d tokens", len(got))
				}
			}
		})
	}
}

// However a text is cut into pieces for the cache, the logits are those without.
func TestNextInPieces(t *testing.T) {
	e := torchtest.Engine(t)
	ids := make([]int32, 90)
	for i := range ids {
		ids[i] = int32(i * i % 23)
	}
	for _, test := range models {
		for _, compute := range []torch.DType{torch.F32, torch.BF16} {
			m := read(t, e, test.folder, test.context, "100", model.Options{Compute: compute})
			tolerance := map[torch.DType]float64{torch.F32: 1e-4, torch.BF16: 0.3}[compute]
			want := forward(t, m, ids)
			for _, pieces := range [][]int{{90}, {1, 89}, {60, 1, 1, 28}, {7, 70, 13}} {
				var got []float32
				torchtest.Do(t, e, false, func(s *torch.Scope) error {
					cache := m.NewCache()
					defer cache.Free()
					rest := ids
					for _, n := range pieces {
						got = m.Next(s, kvcache.Text{IDs: rest[:n], Cache: cache}).CopyFloat32s()
						rest = rest[n:]
					}
					return nil
				})
				for i := range want {
					if d := math.Abs(float64(got[i] - want[i])); !(d <= tolerance) {
						t.Fatalf("%s in %s, pieces %v: logit %d is %v, without a cache %v", test.folder, compute, pieces, i, got[i], want[i])
					}
				}
			}
		}
	}
}

func TestCacheIsBounded(t *testing.T) {
	e := torchtest.Engine(t)
	m := read(t, e, "llama/testdata/tied", "256", "24", model.Options{})
	err := e.Do(t.Context(), false, func(s *torch.Scope) error {
		cache := m.NewCache()
		defer cache.Free()
		m.Next(s, kvcache.Text{IDs: make([]int32, 20), Cache: cache})
		m.Next(s, kvcache.Text{IDs: make([]int32, 5), Cache: cache})
		return nil
	})
	golden.Message(t, "25 tokens", err)
}

// watched is a model that notes how many tokens are computed at once.
type watched struct {
	model.Model
	pieces []int64
	each   func()
}

func (w *watched) Next(s *torch.Scope, texts ...kvcache.Text) *torch.Tensor {
	for _, t := range texts {
		w.pieces = append(w.pieces, int64(len(t.IDs)))
	}
	w.each()
	return w.Model.Next(s, texts...)
}

// A long prompt is computed in pieces, so that others have their turn, and ends with its context.
func TestLongPrompt(t *testing.T) {
	e := torchtest.Engine(t)
	m := &watched{Model: read(t, e, "llama/testdata/tied", "256", "1000", model.Options{})}
	ctx, cancel := context.WithCancel(t.Context())
	prompt, o := make([]int32, 600), greedy
	o.MaxTokens = 2
	for _, test := range []struct {
		each func()
		err  error
		want []int64
	}{{func() {}, nil, []int64{256, 256, 88, 1}}, {cancel, context.Canceled, []int64{256}}} {
		m.pieces, m.each = nil, test.each
		err := generate.Tokens(ctx, m, prompt, o, func(int32) error { return nil })
		if !errors.Is(err, test.err) || !slices.Equal(m.pieces, test.want) {
			t.Errorf("%v were computed at once, %v; want %v", m.pieces, err, test.want)
		}
	}
}

// TestObserve: each token's logits are seen as the model computed them, before the penalty, and change no token.
func TestObserve(t *testing.T) {
	m := read(t, torchtest.Engine(t), "llama/testdata/tied", "256", "100", model.Options{})
	o := greedy
	o.MaxTokens, o.RepetitionPenalty = 5, 1.5
	want := write(t, m, []int32{3, 1, 4}, o)
	var seen [][]float32
	o.Observe = func(logits []float32) { seen = append(seen, slices.Clone(logits)) }
	if got := write(t, m, []int32{3, 1, 4}, o); !slices.Equal(got, want) || len(seen) != len(want) {
		t.Fatalf("tokens %v, %d times logits, without an observer %v", got, len(seen), want)
	}
	text := []int32{3, 1, 4}
	for i, id := range want {
		for j, logit := range forward(t, m, text) {
			if d := math.Abs(float64(logit - seen[i][j])); !(d <= 1e-4) {
				t.Fatalf("token %d: logit %d is %v, want %v", i, j, seen[i][j], logit)
			}
		}
		text = append(text, id)
	}
}

func TestOptions(t *testing.T) {
	e := torchtest.Engine(t)
	m := read(t, e, "llama/testdata/tied", "256", "100", model.Options{})
	prompt := []int32{1, 2}
	free := generate.Options{MaxTokens: 60, Temperature: 1, TopP: 1, RepetitionPenalty: 1}
	with := func(change func(o *generate.Options)) []int32 {
		o := free
		change(&o)
		return write(t, m, prompt, o)
	}
	best := write(t, m, prompt, greedy)[:20]
	same := func(name string, got []int32, want bool) {
		t.Helper()
		if slices.Equal(got[:20], best) != want {
			t.Errorf("%s: %v, greedy: %v", name, got[:20], best)
		}
	}
	same("top-k 1", with(func(o *generate.Options) { o.TopK = 1 }), true)
	same("top-p of nearly 0", with(func(o *generate.Options) { o.TopP = 1e-9 }), true)
	same("nearly cold", with(func(o *generate.Options) { o.Temperature = 1e-6 }), true)
	same("drawn", with(func(o *generate.Options) {}), false)
	one, again, other := with(func(o *generate.Options) { o.Seed = 5 }), with(func(o *generate.Options) { o.Seed = 5 }), with(func(o *generate.Options) { o.Seed = 6 })
	if !slices.Equal(one, again) || slices.Equal(one, other) {
		t.Errorf("seeds 5, 5, 6 gave %v, %v, %v", one, again, other)
	}
	if ended := with(func(o *generate.Options) { o.Seed, o.Stop = 5, []int32{one[7]} }); len(ended) > 7 || !slices.Equal(ended, one[:len(ended)]) {
		t.Errorf("stopped after %v, want before %d of %v", ended, one[7], one)
	}
	for _, id := range with(func(o *generate.Options) { o.Vocab = 10 }) {
		if id >= 10 {
			t.Errorf("token %d of a vocabulary of 10", id)
		}
	}
	varied := write(t, m, prompt, generate.Options{MaxTokens: 25, TopP: 1, RepetitionPenalty: 1e6})
	if distinct := slices.Compact(slices.Sorted(slices.Values(varied))); len(distinct) < 20 {
		t.Errorf("with a large penalty %v repeats itself", varied)
	}
}

func TestErrors(t *testing.T) {
	e := torchtest.Engine(t)
	m := read(t, e, "llama/testdata/tied", "256", "100", model.Options{})
	none := func(int32) error { return nil }
	for name, change := range map[string]func(o *generate.Options){
		"tokens": func(o *generate.Options) { o.MaxTokens = 0 }, "temperature": func(o *generate.Options) { o.Temperature = math.NaN() },
		"top-k": func(o *generate.Options) { o.TopK = -1 }, "top-p": func(o *generate.Options) { o.TopP = 0 },
		"penalty": func(o *generate.Options) { o.RepetitionPenalty = 0 }, "vocabulary": func(o *generate.Options) { o.Vocab = -1 },
	} {
		o := greedy
		change(&o)
		if err := generate.Tokens(t.Context(), m, []int32{1}, o, none); !errors.Is(err, generate.ErrOptions) {
			t.Errorf("%s: error %v", name, err)
		}
	}
	for _, prompt := range [][]int32{nil, {-1}, {32}} {
		if err := generate.Tokens(t.Context(), m, prompt, greedy, none); !errors.Is(err, generate.ErrOptions) {
			t.Errorf("prompt %v: error %v", prompt, err)
		}
	}
	full := errors.New("full")
	if err := generate.Tokens(t.Context(), m, []int32{1}, greedy, func(int32) error { return full }); !errors.Is(err, full) {
		t.Errorf("error %v", err)
	}
	cancelled, cancel := context.WithCancel(t.Context())
	err := generate.Tokens(cancelled, m, []int32{1}, greedy, func(int32) error { cancel(); return nil })
	if !errors.Is(err, context.Canceled) {
		t.Errorf("error %v", err)
	}
}
