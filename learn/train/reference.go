package train

import (
	"math"

	"github.com/psyche-go/psyche/core/audit"
	"github.com/psyche-go/psyche/learn/distro"
)

// faint limits how small the norm can be with which errors in a tensor's chunks are compared. Per
// element, this norm is at least the norm of the model's gradient divided by faint. If a tensor has
// almost no gradient, as the queries and keys of a layer that attends evenly, only the noise of
// cancelled terms remains.
const faint = 128

// fill copies the chunks of a reference from the updates of all tensors, times a factor.
func fill(reference *audit.Reference, layouts []distro.Layout, updates [][]float32, scale float32) {
	all, elements := 0, 0
	for _, l := range layouts {
		all += l.Elements()
	}
	minimum := norm(updates) / faint / math.Sqrt(float64(all)) // per element
	lengths := make([]float64, len(updates))                   // of each tensor with one of the chunks; else 0
	for _, chunk := range reference.Chunks {
		tensor, _, _ := reference.Shapes.Find(chunk)
		elements += layouts[tensor].ChunkSize()
	}
	room := make([]float32, elements)
	for _, chunk := range reference.Chunks {
		tensor, within, _ := reference.Shapes.Find(chunk)
		if lengths[tensor] == 0 {
			lengths[tensor] = norm(updates[tensor : tensor+1])
		}
		layout := layouts[tensor]
		update := layout.Chunk(updates[tensor], within, room[:layout.ChunkSize():layout.ChunkSize()])
		room = room[len(update):]
		for i := range update {
			update[i] *= scale
		}
		reference.Updates = append(reference.Updates, update)
		element := max(lengths[tensor]/math.Sqrt(float64(layout.Elements())), minimum)
		reference.Usual = append(reference.Usual, element*float64(scale)*math.Sqrt(float64(layout.ChunkSize())))
	}
}
