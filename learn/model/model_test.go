package model_test

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/psyche-go/psyche/files/safetensors"
	"github.com/psyche-go/psyche/learn/model"
	"github.com/psyche-go/psyche/learn/model/weights"
	"github.com/psyche-go/psyche/learn/torch"
	"github.com/psyche-go/psyche/learn/torch/torchtest"
)

func config(t *testing.T) []byte {
	t.Helper()
	data, err := os.ReadFile(filepath.Join("llama", "testdata", "tied", "config.json"))
	if err != nil {
		t.Fatal(err)
	}
	return data
}

func TestInitDescribeNew(t *testing.T) {
	e := torchtest.Engine(t)
	description, err := model.Describe(config(t))
	if err != nil {
		t.Fatal(err)
	}
	tensors, err := model.Init(config(t), 5)
	if err != nil {
		t.Fatal(err)
	}
	m, err := model.New(t.Context(), e, config(t), model.Options{}, tensors)
	if err != nil {
		t.Fatal(err)
	}
	if m.VocabSize() != description.VocabSize || m.MaxTokens() != description.MaxTokens || m.Engine() != e {
		t.Errorf("%+v does not describe the model", description)
	}
	var count int64
	for _, p := range m.Parameters() {
		count += p.Tensor.Numel()
	}
	if count != description.NumParameters {
		t.Errorf("%d parameters, described as %d", count, description.NumParameters)
	}
	torchtest.Do(t, e, false, func(s *torch.Scope) error {
		ids := s.FromInt32s([]int32{1, 2, 3}, 1, 3)
		logits := m.Forward(s, ids).Reshape(3, -1)
		loss, want := m.Loss(s, ids, ids).Item(), logits.CrossEntropy(ids.Reshape(-1)).Item()
		if d := loss - want; d > 1e-6 || d < -1e-6 {
			t.Errorf("loss %v, from the logits %v", loss, want)
		}
		return nil
	})
	if err := m.Close(t.Context()); err != nil {
		t.Error(err)
	}
}

func TestSetWeights(t *testing.T) {
	e := torchtest.Engine(t)
	first, err := model.Init(config(t), 1)
	if err != nil {
		t.Fatal(err)
	}
	second, err := model.Init(config(t), 2)
	if err != nil {
		t.Fatal(err)
	}
	m, err := model.New(t.Context(), e, config(t), model.Options{}, first)
	if err != nil {
		t.Fatal(err)
	}
	broken := append(second[:0:0], second...)
	broken[len(broken)-1].Shape = []int64{1}
	for _, wrong := range [][]safetensors.Tensor{nil, second[1:], append(second[1:len(second):len(second)], second[1]), broken} {
		if err := model.SetWeights(t.Context(), m, wrong); !errors.Is(err, weights.ErrMismatch) {
			t.Errorf("error %v, want a mismatch", err)
		}
	}
	for _, want := range [][]safetensors.Tensor{first, second} {
		if &want[0] == &second[0] {
			if err := model.SetWeights(t.Context(), m, second); err != nil {
				t.Fatal(err)
			}
		}
		got, err := model.Export(t.Context(), m)
		if err != nil {
			t.Fatal(err)
		}
		for i := range want {
			if got[i].Name != want[i].Name || string(got[i].Data) != string(want[i].Data) {
				t.Fatalf("%s differs from its set value", want[i].Name)
			}
		}
	}
}

func TestUnknownArchitecture(t *testing.T) {
	for _, text := range []string{`{`, `{}`, `{"architectures": ["T5"]}`, `{"architectures": ["LlamaForCausalLM", "T5"]}`} {
		_, err := model.Init([]byte(text), 1)
		if err == nil || !strings.Contains(err.Error(), "config.json") {
			t.Errorf("%s: error %v", text, err)
		}
	}
	if _, err := model.Describe([]byte(`{"architectures": ["T5"]}`)); !errors.Is(err, model.ErrArchitecture) {
		t.Errorf("error %v", err)
	}
}

// TestEveryArchitecture creates a new model from each small configuration in testdata, for every
// architecture.
func TestEveryArchitecture(t *testing.T) {
	e := torchtest.Engine(t)
	seen := map[string]bool{}
	paths, err := filepath.Glob(filepath.Join("*", "testdata", "*", "config.json"))
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range paths {
		t.Run(filepath.ToSlash(path), func(t *testing.T) {
			text, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			description, err := model.Describe(text)
			if err != nil {
				t.Fatal(err)
			}
			seen[description.Architecture] = true
			checkNew(t, e, text, description)
		})
	}
	for _, name := range model.Architectures() {
		if !seen[name] {
			t.Errorf("no testdata has a %s", name)
		}
	}
}

// checkNew creates a new model, a twin and a copy, and checks the number of parameters and the
// tensors of each.
func checkNew(t *testing.T, e *torch.Engine, config []byte, description model.Description) {
	t.Helper()
	want, err := model.Init(config, 3)
	if err != nil {
		t.Fatal(err)
	}
	m, err := model.New(t.Context(), e, config, model.Options{}, want)
	if err != nil {
		t.Fatal(err)
	}
	twin, err := model.Twin(t.Context(), e, m)
	if err != nil {
		t.Fatal(err)
	}
	copied, err := model.Copy(t.Context(), e, m, model.Options{})
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range []model.Model{copied, twin, m} {
		var count, hidden, largest int64
		for _, p := range m.Parameters() {
			count += p.Tensor.Numel()
			largest = max(largest, p.Tensor.Numel())
			if weights.Hidden(p.Name, p.Tensor.Shape()) {
				hidden += p.Tensor.Numel()
			}
		}
		if count != description.NumParameters || hidden != description.NumHidden || largest != description.Largest {
			t.Errorf("%d parameters, %d of them in matrices between hidden layers, %d in the largest tensor; described as %+v", count, hidden, largest, description)
		}
		if err := model.SetWeights(t.Context(), m, want); err != nil {
			t.Error(err)
		}
		got, err := model.Export(t.Context(), m)
		if err != nil {
			t.Fatal(err)
		}
		same := func(a, b safetensors.Tensor) bool { return a.Name == b.Name && slices.Equal(a.Data, b.Data) }
		if !slices.EqualFunc(got, want, same) {
			t.Error("the tensors differ from the new ones")
		}
		if err := m.Close(t.Context()); err != nil {
			t.Error(err)
		}
	}
}
