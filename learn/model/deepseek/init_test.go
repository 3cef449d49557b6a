package deepseek_test

import (
	"crypto/sha256"
	"encoding/hex"
	"slices"
	"strings"
	"testing"

	"github.com/psyche-go/psyche/files/safetensors"
	"github.com/psyche-go/psyche/learn/model/deepseek"
	"github.com/psyche-go/psyche/learn/model/modeltest"
)

func TestInit(t *testing.T) {
	c, err := deepseek.ParseConfig([]byte(v3 + moe + `, "q_lora_rank": 6, "n_group": 4, "topk_group": 2, "first_k_dense_replace": 1}`))
	if err != nil {
		t.Fatal(err)
	}
	tensors := deepseek.Init(c, 1, func(int64) {})
	if !slices.IsSortedFunc(tensors, func(a, b safetensors.Tensor) int { return strings.Compare(a.Name, b.Name) }) {
		t.Error("not sorted by name")
	}
	hash, trained := sha256.New(), int64(0)
	for _, tensor := range tensors {
		hash.Write([]byte(tensor.Name))
		hash.Write(tensor.Data)
		first := modeltest.Float32s(t, tensor)[0]
		switch {
		case strings.HasSuffix(tensor.Name, "e_score_correction_bias"):
			if first != 0 {
				t.Errorf("%s starts with %v", tensor.Name, first)
			}
			continue
		case len(tensor.Shape) == 1 && first != 1:
			t.Errorf("%s starts with %v", tensor.Name, first)
		}
		trained += int64(len(tensor.Data) / 4)
	}
	if got := deepseek.NumParameters(c); got != trained {
		t.Errorf("%d parameters are counted, %d made", got, trained)
	}
	// The weights must be the same on every machine and never change: runs are described by config
	// and seed.
	const golden = "76de0aaeaa523863c9b3aeffd4925bfbf962a51415a58f9573bf38c888509319"
	if got := hex.EncodeToString(hash.Sum(nil)); got != golden {
		t.Errorf("bits of seed 1 hash to %s, want %s", got, golden)
	}
}
