package blob

import "container/list"

// room accounts for the bytes of one storage medium. The store's mutex guards it.
type room struct {
	max   int64
	used  int64     // by payloads, partials and reservations
	loose int64     // part of used that may be removed
	order list.List // of *roomEntry, oldest first
}

// roomEntry is an entry in a room's order that may be removed when space is needed.
type roomEntry struct {
	remove  func()
	bytes   int64
	element *list.Element
}

func (r *room) add(remove func(), bytes int64) *roomEntry {
	p := &roomEntry{remove: remove, bytes: bytes}
	p.element = r.order.PushBack(p)
	r.loose += bytes
	return p
}

// remove removes an entry from the order. It does nothing for a nil entry.
func (r *room) remove(p *roomEntry) {
	if p == nil || p.element == nil {
		return
	}
	r.order.Remove(p.element)
	p.element = nil
	r.loose -= p.bytes
}

// makeRoom removes the oldest entries until need more bytes fit. It removes nothing if they can
// never fit.
func (r *room) makeRoom(need int64) bool {
	if r.used-r.loose+need > r.max {
		return false
	}
	for r.used+need > r.max && r.order.Len() > 0 {
		r.order.Front().Value.(*roomEntry).remove()
	}
	return true
}

// FreeDisk frees disk space for data that is more important than payloads. It deletes payloads that
// are not retained from the folder, and moves retained payloads into memory as far as they fit.
// From then on, payloads that fit into memory are not written to the folder. FreeDisk returns the
// number of bytes that it freed.
func (s *Store) FreeDisk() (freed int64) {
	if s.folder == nil {
		return 0
	}
	s.mu.Lock()
	before := s.disk.used
	for s.disk.order.Len() > 0 {
		s.disk.order.Front().Value.(*roomEntry).remove()
	}
	var retained []*entry
	for _, e := range s.blobs {
		if e.data == nil && e.room == &s.disk {
			retained = append(retained, e)
		}
	}
	s.spare = true
	s.mu.Unlock()
	for _, e := range retained {
		s.moveToMemory(e)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return before - s.disk.used
}

// moveToMemory moves a retained payload from the disk, if it fits into memory.
func (s *Store) moveToMemory(e *entry) {
	outboard, err := e.outboard()
	var data []byte
	if err == nil {
		data, err = s.folder.read(e.hash, e.size)
	}
	if err != nil {
		s.lost(e, err)
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.blobs[e.hash] != e || e.inRoom != nil || !s.memory.makeRoom(cost(e.size)) {
		return
	}
	s.drop(e.hash)
	s.memory.used += cost(e.size)
	s.insert(&entry{hash: e.hash, size: e.size, data: data, room: &s.memory, outboard: made(outboard)})
	s.retain(e.hash)
}
