package exchange

// Blobs drops blobs that nothing needs any more. A peer may announce any hash as that of its
// result: one of another's result, or of a part of the model. So a blob is only dropped when
// nobody of those who may need it does.
type Blobs struct {
	drop    func(hash [32]byte)
	needers []func(need func(hash [32]byte))
}

// NewBlobs returns the blobs of a store that drops with drop.
func NewBlobs(drop func(hash [32]byte)) *Blobs { return &Blobs{drop: drop} }

// NeededBy adds somebody who may need blobs: each calls need for every hash that it needs.
func (b *Blobs) NeededBy(each func(need func(hash [32]byte))) { b.needers = append(b.needers, each) }

// Drop drops those of the blobs that nothing needs.
func (b *Blobs) Drop(hashes ...[32]byte) {
	if len(hashes) == 0 {
		return
	}
	unneeded := make(map[[32]byte]bool, len(hashes))
	for _, hash := range hashes {
		unneeded[hash] = true
	}
	for _, each := range b.needers {
		each(func(hash [32]byte) { delete(unneeded, hash) })
	}
	for _, hash := range hashes {
		if unneeded[hash] {
			b.drop(hash)
		}
	}
}
