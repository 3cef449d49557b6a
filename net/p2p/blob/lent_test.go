package blob

import (
	"bytes"
	"context"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"lukechampine.com/blake3"

	"github.com/psyche-go/psyche/net/p2p/p2ptest"
)

// TestLentIsAlwaysWhole: while payloads are put, lent, dropped, and moved off the disk at random by one member, others fetch
// them. What they get is right, whoever sent it is not blamed, and in the end nothing is left and no room is taken.
func TestLentIsAlwaysWhole(t *testing.T) {
	nodes := p2ptest.New(t, "holder", "a", "b")
	store := openStore(t, t.TempDir())
	store.memory.max = 4 << 20
	Serve(nodes[0], store)
	var parts [][]byte
	var hashes []Hash
	for _, size := range []int{0, 1, groupSize, 3*groupSize + 5, spillSize - 1, spillSize + 3, 2*maxRange + 9} {
		parts = append(parts, payload(size))
		hashes = append(hashes, blake3.Sum256(parts[len(parts)-1]))
	}
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
	defer cancel()
	var all sync.WaitGroup
	for worker := range 4 {
		r := rand.New(rand.NewPCG(7, uint64(worker)))
		all.Go(func() {
			for ctx.Err() == nil {
				i := r.IntN(len(parts))
				switch r.IntN(6) {
				case 0, 1, 2:
					store.Lend(parts[i])
				case 3:
					store.Put(parts[i])
				case 4:
					store.Drop(hashes[i])
				case 5:
					if r.IntN(20) == 0 {
						store.GiveWay()
					} else if data, held := store.Get(hashes[i]); held && !bytes.Equal(data, parts[i]) {
						t.Errorf("payload %d is another one", i)
					}
				}
				time.Sleep(time.Duration(r.IntN(5)) * time.Millisecond)
			}
		})
	}
	got := 0
	for n, node := range nodes[1:] {
		r := rand.New(rand.NewPCG(8, uint64(n)))
		all.Go(func() {
			for ctx.Err() == nil {
				i := r.IntN(len(parts))
				data, err := Fetch(ctx, node, NewStore(1<<30), hashes[i], uint64(len(parts[i])), p2ptest.IDs(nodes[0]))
				if err == nil && !bytes.Equal(data, parts[i]) {
					t.Errorf("payload %d came as another one", i)
				}
				if err == nil && n == 0 {
					got++
				}
			}
		})
	}
	all.Wait()
	if got == 0 {
		t.Error("nothing was fetched")
	}
	for _, node := range nodes[1:] {
		if score := node.Score(nodes[0].ID()); score != 0 {
			t.Errorf("the holder is blamed: %v", score)
		}
	}
	for _, h := range hashes {
		store.Drop(h)
	}
	if usage := store.Usage(); usage != (Usage{}) {
		t.Errorf("left behind %+v", usage)
	}
}
