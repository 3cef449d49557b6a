package codec_test

import (
	"fmt"
	"log"

	"github.com/psyche-go/psyche/core/codec"
)

// The model has one tensor with two chunks of 64 coefficients. A result contains at most three
// coefficients of each chunk: one bit for each sign and the rank of their indices.
func Example() {
	layouts := []codec.TensorLayout{{Chunks: 2, ChunkSize: 64, K: 3}}
	header := codec.Header{Step: 7, BatchStart: 12, BatchEnd: 15}
	result := codec.TensorResult{
		Counts:  []uint16{3, 1},
		Indices: []uint16{4, 17, 60, 9, 0, 0},
		Values:  []float32{0.5, -2, 0.25, -1, 0, 0},
	}
	encoded, err := codec.Encode(header, layouts, true, []codec.TensorResult{result})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Printf("%d bytes, %d of them the header\n", len(encoded), codec.HeaderSize)

	h, decoded, err := codec.Decode(encoded, layouts, true)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Printf("step %d, batch [%d,%d)\n", h.Step, h.BatchStart, h.BatchEnd)
	fmt.Println(decoded[0].Indices[:3], decoded[0].Values[:3])
	fmt.Println(decoded[0].Indices[3:4], decoded[0].Values[3:4])

	// Output:
	// 164 bytes, 159 of them the header
	// step 7, batch [12,15)
	// [4 17 60] [1 -1 1]
	// [9] [-1]
}
