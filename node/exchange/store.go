package exchange

// Store is everything that peers may ask for.
type Store struct {
	Shelf   *Shelf
	History *History
	*Blobs
}

// NewStore returns a store with nothing on it. Drop is that of the blob store.
func NewStore(drop func(hash [32]byte)) *Store {
	s := &Store{Shelf: newShelf(), History: &History{}, Blobs: NewBlobs(drop)}
	s.NeededBy(s.History.EachBlob)
	return s
}

// Remember keeps the results of a round for members that were away.
func (s *Store) Remember(round AppliedRound) { s.Drop(s.History.Push(round)...) }

// Forget drops what is kept for members that were away. From now on the model has that many bytes,
// and the results of the running epoch may take that much memory.
func (s *Store) Forget(model, memory uint64) { s.Drop(s.History.Reset(model, memory)...) }
