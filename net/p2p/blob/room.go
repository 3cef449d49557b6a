package blob

import "container/list"

// room keeps account of the bytes of one medium. The store's mutex guards it.
type room struct {
	max   int64
	used  int64     // by payloads, partials and reservations
	loose int64     // of it: what may be removed
	order list.List // of *place, oldest first
}

// place is something in a room that may be removed when the room is needed.
type place struct {
	remove  func()
	bytes   int64
	element *list.Element
}

func (r *room) add(remove func(), bytes int64) *place {
	p := &place{remove: remove, bytes: bytes}
	p.element = r.order.PushBack(p)
	r.loose += bytes
	return p
}

// remove takes a place out of the order; nil is one that is not in it.
func (r *room) remove(p *place) {
	if p == nil || p.element == nil {
		return
	}
	r.order.Remove(p.element)
	p.element = nil
	r.loose -= p.bytes
}

// makeRoom removes the oldest until need more bytes fit. It removes nothing when they
// never will.
func (r *room) makeRoom(need int64) bool {
	if r.used-r.loose+need > r.max {
		return false
	}
	for r.used+need > r.max && r.order.Len() > 0 {
		r.order.Front().Value.(*place).remove()
	}
	return true
}
