package exchange

// Blobs drops blobs that are no longer needed. A peer may announce any hash as the hash of its
// result, including the hash of another peer's result or of a part of the model. Blobs therefore
// drops a blob only if none of the registered users needs it.
type Blobs struct {
	drop    func(hash [32]byte)
	needers []func(need func(hash [32]byte))
}

// NewBlobs returns the Blobs of a store, from which drop removes a blob.
func NewBlobs(drop func(hash [32]byte)) *Blobs { return &Blobs{drop: drop} }

// NeededBy registers a user of blobs. each calls need for every hash that the user needs.
func (b *Blobs) NeededBy(each func(need func(hash [32]byte))) { b.needers = append(b.needers, each) }

// Drop drops the given blobs, but keeps blobs that a user needs.
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
