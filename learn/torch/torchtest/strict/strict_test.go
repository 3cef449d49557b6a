package strict_test

import (
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"testing"
	"unsafe"

	"github.com/psyche-go/psyche/learn/model"
	"github.com/psyche-go/psyche/learn/torch"
	"github.com/psyche-go/psyche/learn/torch/torchtest"
	"github.com/psyche-go/psyche/learn/torch/torchtest/strict"
)

// engine returns an engine of a device that is closed when the test ends.
func engine(t *testing.T, device torch.Device) *torch.Engine {
	t.Helper()
	e, err := torch.NewEngine(device)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = e.Close() })
	return e
}

// config returns the config.json of a Llama with the shape of bench/step's model of 160 M parameters,
// scaled down, and with key heads that query heads share.
func config(layers int) []byte {
	return fmt.Appendf(nil, `{"architectures": ["LlamaForCausalLM"], "model_type": "llama", "vocab_size": 320, "hidden_size": 96,
		"intermediate_size": 384, "num_hidden_layers": %d, "num_attention_heads": 6, "num_key_value_heads": 2, "head_dim": 16,
		"max_position_embeddings": 64, "rms_norm_eps": 1e-5, "rope_theta": 10000.0, "tie_word_embeddings": false}`, layers)
}

const sequences, tokens = 2, 40

// text returns token ids and targets. Two targets do not count.
func text() (ids, targets []int32) {
	for i := range int32(sequences * tokens) {
		ids = append(ids, i*i*7%320)
		targets = append(targets, (i*31+5)%320)
	}
	targets[3], targets[50] = torch.IgnoreTarget, torch.IgnoreTarget
	return ids, targets
}

// newModel returns a model on a device.
func newModel(t *testing.T, device torch.Device, layers int, o model.Options) model.Model {
	t.Helper()
	tensors, err := model.Init(config(layers), 1)
	if err != nil {
		t.Fatal(err)
	}
	m, err := model.New(t.Context(), engine(t, device), config(layers), o, tensors)
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// gradients computes the loss and the gradients of two micro-batches.
func gradients(t *testing.T, m model.Model) (loss float64, all [][]float32) {
	t.Helper()
	ids, targets := text()
	torchtest.Do(t, m.Engine(), true, func(s *torch.Scope) error {
		for range 2 {
			loss = m.Gradient(s, s.FromInt32s(ids, sequences, tokens), s.FromInt32s(targets, sequences, tokens), 0.5).Item()
		}
		for _, p := range m.Parameters() {
			all = append(all, p.Tensor.Grad().Contiguous().CopyFloat32s())
			p.Tensor.ClearGrad()
		}
		return nil
	})
	return loss, all
}

// distance returns the norm of a-b relative to the norm of b, which counts as at least 0.01.
func distance(a, b []float32) float64 {
	var apart, norm float64
	for i := range a {
		d := float64(a[i]) - float64(b[i])
		apart, norm = apart+d*d, norm+float64(b[i])*float64(b[i])
	}
	return math.Sqrt(apart / max(norm, 1e-4))
}

// TestModel compares the loss and the gradients of a model on the device with those on the CPU.
func TestModel(t *testing.T) {
	if !strict.Start(t) {
		return
	}
	for _, recompute := range []bool{false, true} {
		if recompute {
			strict.UseKernels(t)
		}
		for compute, limit := range map[torch.DType]float64{torch.F32: 2e-5, torch.BF16: 0.04} {
			o := model.Options{Compute: compute, Recompute: recompute}
			loss, got := gradients(t, newModel(t, 0, 2, o))
			exact := newModel(t, torch.CPU, 2, model.Options{})
			want, wanted := gradients(t, exact)
			if !(math.Abs(loss-want) < limit) {
				t.Errorf("%v: loss %v, want %v", o, loss, want)
			}
			for i, p := range exact.Parameters() {
				if d := distance(got[i], wanted[i]); !(d < limit) {
					t.Errorf("%v: the gradient of %s differs by %.1e", o, p.Name, d)
				}
			}
		}
	}
}

// Limits on the launches of a layer and of the ends, with an attention kernel.
const mostOfLayer, mostOfEnds = 40, 20

// TestLaunches counts the launches of a forward and backward pass for each layer, and logs the bytes of
// the pass. The pass must not wait.
func TestLaunches(t *testing.T) {
	if !strict.Start(t) {
		return
	}
	strict.UseKernels(t)
	for _, compute := range []torch.DType{torch.F32, torch.BF16} {
		one, ofOne := pass(t, 1, compute)
		three, ofThree := pass(t, 3, compute)
		layer := (three.Launches - one.Launches) / 2
		t.Logf("%v: %d launches per layer, %d for the ends, %d waits, %d bytes up in %d copies, %d bytes down in %d copies, peak %d bytes", compute,
			layer, one.Launches-layer, three.Waits, three.UpBytes, three.UpCopies, three.DownBytes, three.DownCopies, three.Peak[0])
		if ofThree["attention"] > 0 && (layer > mostOfLayer || one.Launches-layer > mostOfEnds) {
			t.Errorf("%v: want at most %d launches per layer and %d for the ends", compute, mostOfLayer, mostOfEnds)
		}
		if three.Waits != 0 || three.DownCopies != 0 {
			t.Errorf("%v: %d waits and %d copies down, want 0", compute, three.Waits, three.DownCopies)
		}
		for _, name := range slices.Sorted(maps.Keys(ofThree)) {
			layer := float64(ofThree[name]-ofOne[name]) / 2
			t.Logf("%6.1f per layer, %3.0f ends: %s", layer, float64(ofOne[name])-layer, name)
		}
	}
}

// pass returns the counts of the second forward and backward pass of a model.
func pass(t *testing.T, layers int, compute torch.DType) (strict.Counts, map[string]int64) {
	t.Helper()
	m := newModel(t, 0, layers, model.Options{Compute: compute})
	ids, targets := text()
	var counts strict.Counts
	var operations map[string]int64
	var weights []*torch.Tensor
	for _, p := range m.Parameters() {
		weights = append(weights, p.Tensor)
	}
	conversions := torch.KeepConversions(weights...)
	defer conversions.Drop()
	torchtest.Do(t, m.Engine(), true, func(s *torch.Scope) error {
		for range 2 {
			strict.Reset()
			m.Gradient(s, s.FromInt32s(ids, sequences, tokens), s.FromInt32s(targets, sequences, tokens), 0.5)
			counts, operations = strict.Read(), strict.Operations()
		}
		return nil
	})
	return counts, operations
}

// TestHostAccess checks that a process that reads the device's memory dies.
func TestHostAccess(t *testing.T) {
	if strict.Inside() {
		strict.Start(t)
		torchtest.Do(t, engine(t, 0), false, func(s *torch.Scope) error {
			x := s.Full(torch.F32, 1, 8)
			if values := x.CopyFloat32s(); values[0] != 1 {
				t.Errorf("a copy reads %v, want 1", values[0])
			}
			close := strict.Open()
			t.Log("open", *at(x))
			close()
			t.Log("closed", *at(x))
			return nil
		})
		return
	}
	output, err := strict.Command(t, t.Name()).CombinedOutput()
	text := string(output)
	if err == nil || !strings.Contains(text, "open 1") || !strings.Contains(text, "fault") || strings.Contains(text, "closed 1") {
		t.Errorf("error = %v, want a fault\n%s", err, output)
	}
}

// at returns the address of a tensor's first element as a pointer, as only a faulty program does.
func at(x *torch.Tensor) *float32 {
	address := x.Address()
	return *(**float32)(unsafe.Pointer(&address))
}

// TestOrdinals checks that operations refuse tensors of two ordinals and tensors of the host, and
// that copies between them work.
func TestOrdinals(t *testing.T) {
	if !strict.Start(t) {
		return
	}
	first, second, host := engine(t, 0), engine(t, 1), torchtest.Engine(t)
	keep := func(e *torch.Engine) (x *torch.Tensor) {
		torchtest.Do(t, e, false, func(s *torch.Scope) error {
			x = s.Keep(s.FromFloat32s([]float32{1, 2, 3}, 3))
			return nil
		})
		return x
	}
	one, two, three := keep(first), keep(second), keep(host)
	if one.Device() != 0 || two.Device() != 1 || three.Device() != torch.CPU {
		t.Errorf("the tensors are on %v, %v and %v", one.Device(), two.Device(), three.Device())
	}
	for _, other := range []*torch.Tensor{two, three} {
		err := first.Do(t.Context(), false, func(*torch.Scope) error {
			one.Add(other)
			return nil
		})
		if refused := (*torch.Error)(nil); !errors.As(err, &refused) {
			t.Errorf("error = %v, want a *torch.Error", err)
		}
	}
	err := first.Do(t.Context(), false, func(s *torch.Scope) error {
		var ids *torch.Tensor
		if err := second.Do(t.Context(), false, func(s *torch.Scope) error {
			ids = s.Keep(s.FromInt32s([]int32{0}, 1))
			return nil
		}); err != nil {
			return err
		}
		s.Zeros(torch.F32, 2, 4).Embed(ids, torch.F32)
		return nil
	})
	if refused := (*torch.Error)(nil); !errors.As(err, &refused) {
		t.Errorf("error = %v, want a *torch.Error", err)
	}
	torchtest.Do(t, first, false, func(s *torch.Scope) error {
		if got := s.Copy(two).Add(one).CopyFloat32s(); !slices.Equal(got, []float32{2, 4, 6}) {
			t.Errorf("the sum is %v", got)
		}
		return nil
	})
	if used := strict.Read().Used; used[0] == 0 || used[1] == 0 {
		t.Errorf("%v bytes are used", used)
	}
}

// TestLimit checks the error of an allocation beyond the limit of one ordinal. The other ordinal has no
// limit.
func TestLimit(t *testing.T) {
	if !strict.Start(t) {
		return
	}
	first, second := engine(t, 0), engine(t, 1)
	strict.Limit(0, 1<<20)
	large := func(s *torch.Scope) error {
		s.Zeros(torch.F32, 1<<20)
		return nil
	}
	err := first.Do(t.Context(), false, large)
	if refused := (*torch.Error)(nil); !errors.As(err, &refused) || !errors.Is(err, torch.ErrMemory) || refused.Wanted() == "" {
		t.Errorf("error = %v, want ErrMemory with the wanted size", err)
	}
	torchtest.Do(t, second, false, large)
	if peak := strict.Read().Peak; peak[0] > 1<<20 || peak[1] < 1<<22 {
		t.Errorf("the peaks are %v bytes", peak)
	}
}
