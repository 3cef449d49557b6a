package safetensors_test

import (
	"fmt"
	"log"
	"os"
	"path/filepath"

	"github.com/psyche-go/psyche/files/safetensors"
)

func Example() {
	dir, err := os.MkdirTemp("", "")
	if err != nil {
		log.Fatal(err)
	}
	defer func() { _ = os.RemoveAll(dir) }()
	path := filepath.Join(dir, "model.safetensors")
	weight := safetensors.FromFloat32s("weight", []int64{2, 3}, []float32{1, 2, 3, 4, 5, 6})
	if err := safetensors.Write(path, []safetensors.Tensor{weight}, map[string]string{"format": "pt"}); err != nil {
		log.Fatal(err)
	}

	tensors, metadata, err := safetensors.Read(path)
	if err != nil {
		log.Fatal(err)
	}
	values, err := tensors[0].Float32s()
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(tensors[0].Name, tensors[0].DType, tensors[0].Shape, values, metadata)

	// Output:
	// weight F32 [2 3] [1 2 3 4 5 6] map[format:pt]
}
