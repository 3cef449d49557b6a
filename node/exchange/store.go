package exchange

// Store contains everything that peers may request.
type Store struct {
	Cache   *Cache
	History *History
	*Blobs
}

// NewStore returns an empty store. drop removes a blob from the blob store.
func NewStore(drop func(hash [32]byte)) *Store {
	s := &Store{Cache: newCache(), History: &History{}, Blobs: NewBlobs(drop)}
	s.NeededBy(s.History.eachBlob)
	return s
}

// Remember keeps the results of a round for members that were away.
func (s *Store) Remember(round AppliedRound) { s.Drop(s.History.push(round)...) }

// Forget drops the results kept for members that were away. model is the size of the model in
// bytes, and memory the maximum size of the running epoch's results.
func (s *Store) Forget(model, memory uint64) { s.Drop(s.History.reset(model, memory)...) }
