package llama_test

import (
	"crypto/sha256"
	"encoding/hex"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/psyche-go/psyche/files/safetensors"
	"github.com/psyche-go/psyche/learn/model/llama"
	"github.com/psyche-go/psyche/learn/model/modeltest"
)

func TestInit(t *testing.T) {
	c, err := llama.ParseConfig([]byte(minimal + `}`))
	if err != nil {
		t.Fatal(err)
	}
	tensors := llama.Init(c, 1, func(int64) {})
	if !slices.IsSortedFunc(tensors, func(a, b safetensors.Tensor) int { return strings.Compare(a.Name, b.Name) }) {
		t.Error("not sorted by name")
	}
	hash := sha256.New()
	var squares float64
	var count int
	for _, tensor := range tensors {
		if err := tensor.Validate(); err != nil {
			t.Error(err)
		}
		hash.Write([]byte(tensor.Name))
		hash.Write(tensor.Data)
		for _, v := range modeltest.Float32s(t, tensor) {
			if len(tensor.Shape) == 1 {
				if v != 1 {
					t.Errorf("%s starts with %v, want ones", tensor.Name, v)
				}
				continue
			}
			squares += float64(v) * float64(v)
			count++
		}
	}
	if deviation := math.Sqrt(squares / float64(count)); math.Abs(deviation/c.InitializerRange-1) > 0.03 {
		t.Errorf("standard deviation %v of %d numbers, want %v", deviation, count, c.InitializerRange)
	}
	// The weights must be the same on every machine and never change: runs are described by config
	// and seed.
	const golden = "ba5b35e839f4d6014e75e640cde05f1a972af9388fc9ccbf16e396ef298ae7af"
	if got := hex.EncodeToString(hash.Sum(nil)); got != golden {
		t.Errorf("bits of seed 1 hash to %s, want %s", got, golden)
	}
	c.Norms.OneMore = true // then a weight of zero changes nothing
	for _, tensor := range llama.Init(c, 1, func(int64) {}) {
		if len(tensor.Shape) == 1 && slices.ContainsFunc(tensor.Data, func(b byte) bool { return b != 0 }) {
			t.Errorf("%s is not zero", tensor.Name)
		}
	}
	c.Biases = llama.Biases{QueryKeyValue: true, Output: true, FeedForward: true}
	for _, tensor := range llama.Init(c, 1, func(int64) {}) {
		if strings.HasSuffix(tensor.Name, ".bias") && slices.ContainsFunc(tensor.Data, func(b byte) bool { return b != 0 }) {
			t.Errorf("%s is not zero", tensor.Name)
		}
	}
	if other := llama.Init(c, 2, func(int64) {}); string(other[0].Data) == string(tensors[0].Data) {
		t.Error("two seeds give the same weights")
	}
}
