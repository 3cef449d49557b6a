package checkpoint_test

import (
	"fmt"
	"log"

	"github.com/psyche-go/psyche/files/checkpoint"
	"github.com/psyche-go/psyche/files/safetensors"
)

// A member shares its model as blobs, which are named by their hashes. A second member that knows
// the digest of the list assembles the same model from the blobs.
func Example() {
	model := checkpoint.Snapshot{
		Step:    7,
		Files:   []checkpoint.File{{Name: checkpoint.ConfigFile, Data: []byte(`{"architectures":["LlamaForCausalLM"]}`)}},
		Tensors: []safetensors.Tensor{safetensors.FromFloat32s("model.norm.weight", []int64{2}, []float32{1, 0.5})},
	}
	manifest := model.Manifest()
	shared := map[[32]byte][]byte{}
	for _, f := range model.Files {
		shared[manifest.Files[0].Hash] = f.Data
	}
	for i, tensor := range model.Tensors {
		shared[manifest.Tensors[i].Hash] = tensor.Data
	}

	received, err := checkpoint.DecodeManifest(manifest.Encode())
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println("the same list:", received.Digest() == manifest.Digest())
	assembled, err := received.Assemble(func(hash [32]byte, size uint64) ([]byte, error) {
		fmt.Println("fetch", size, "bytes")
		return shared[hash], nil
	})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println("step", assembled.Step, "with", assembled.Tensors[0].Name)

	// Output:
	// the same list: true
	// fetch 38 bytes
	// fetch 8 bytes
	// step 7 with model.norm.weight
}
