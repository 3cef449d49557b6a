package coordinator

import "math/bits"

// idSet is a set of keys: a hash table with open addressing. Keys chosen to collide make it as slow
// as a linear search, but not wrong.
type idSet struct {
	ids    []ClientID
	places []uint16 // index in ids + 1; 0: free
}

// newIDSet returns the set of a list. The set continues to read the list.
func newIDSet(ids []ClientID) idSet {
	s := idSet{ids: ids, places: make([]uint16, 1<<bits.Len(uint(2*len(ids))))}
	for i := range ids {
		s.add(i)
	}
	return s
}

// add adds the key at index i of the list and reports whether the key is new.
func (s *idSet) add(i int) bool {
	place, found := s.find(&s.ids[i])
	if found {
		return false
	}
	s.places[place] = uint16(i + 1)
	return true
}

func (s *idSet) has(id ClientID) bool {
	_, found := s.find(&id)
	return found
}

// find returns the slot of a key, or the free slot for it.
func (s *idSet) find(id *ClientID) (place uint64, found bool) {
	mask := uint64(len(s.places) - 1)
	hash := (le.Uint64(id[:]) ^ le.Uint64(id[8:]) ^ le.Uint64(id[16:]) ^ le.Uint64(id[24:])) * 0x9e3779b97f4a7c15
	for place = hash >> 32 & mask; ; place = (place + 1) & mask {
		i := s.places[place]
		if i == 0 {
			return place, false
		}
		if s.ids[i-1] == *id {
			return place, true
		}
	}
}

// repeats reports whether a list contains a key twice.
func repeats(ids []ClientID) bool {
	s := idSet{ids: ids, places: make([]uint16, 1<<bits.Len(uint(2*len(ids))))}
	for i := range ids {
		if !s.add(i) {
			return true
		}
	}
	return false
}

// lookup finds many clients of a list. It is fast if the keys come in the list's order.
type lookup struct {
	clients []Client
	next    int // expected index of the next client
}

// find returns the client with the key, or nil.
func (l *lookup) find(id ClientID) *Client {
	for range l.clients {
		if l.next == len(l.clients) {
			l.next = 0
		}
		client := &l.clients[l.next]
		l.next++
		if client.ID == id {
			return client
		}
	}
	return nil
}
