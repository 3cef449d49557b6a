// Package modeltest reads reference values for tests of models: folders of testdata with a
// config.json and a vectors.safetensors, written by the programs in scripts/reference.
package modeltest

import (
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/psyche-go/psyche/files/safetensors"
)

// Vectors are reference values of one small model.
type Vectors struct {
	Config    []byte
	Weights   []safetensors.Tensor
	Gradients map[string][]float32          // of the loss, by the names of weights
	Other     map[string]safetensors.Tensor // ids, targets, logits, loss
}

// Read reads the folder with a name in testdata.
func Read(t testing.TB, name string) Vectors {
	t.Helper()
	return ReadFolder(t, filepath.Join("testdata", name))
}

// ReadFolder reads a folder.
func ReadFolder(t testing.TB, dir string) Vectors {
	t.Helper()
	config, err := os.ReadFile(filepath.Join(dir, "config.json"))
	if err != nil {
		t.Fatal(err)
	}
	tensors, _, err := safetensors.Read(filepath.Join(dir, "vectors.safetensors"))
	if err != nil {
		t.Fatal(err)
	}
	v := Vectors{Config: config, Gradients: map[string][]float32{}, Other: map[string]safetensors.Tensor{}}
	for _, tensor := range tensors {
		switch kind, name, _ := strings.Cut(tensor.Name, "/"); kind {
		case "weight":
			tensor.Name = name
			v.Weights = append(v.Weights, tensor)
		case "gradient":
			v.Gradients[name] = Float32s(t, tensor)
		default:
			v.Other[kind] = tensor
		}
	}
	return v
}

// Float32s returns a tensor's values.
func Float32s(t testing.TB, tensor safetensors.Tensor) []float32 {
	t.Helper()
	values, err := tensor.Float32s()
	if err != nil {
		t.Fatal(err)
	}
	return values
}

// MaxError returns the largest difference.
func MaxError(t testing.TB, name string, got, want []float32) float64 {
	t.Helper()
	if len(got) != len(want) {
		t.Fatalf("%s: %d numbers, want %d", name, len(got), len(want))
	}
	worst := 0.0
	for i := range got {
		difference := math.Abs(float64(got[i]) - float64(want[i]))
		if math.IsNaN(difference) {
			t.Fatalf("%s[%d] is %v, want %v", name, i, got[i], want[i])
		}
		worst = max(worst, difference)
	}
	return worst
}

// MaxRelativeError returns the largest difference, relative to the largest value if that is above
// 1.
func MaxRelativeError(t testing.TB, name string, got, want []float32) float64 {
	t.Helper()
	largest := 1.0
	for _, value := range want {
		largest = max(largest, math.Abs(float64(value)))
	}
	return MaxError(t, name, got, want) / largest
}
