package server

import (
	"bytes"

	"github.com/psyche-go/psyche/base/identity"
	"github.com/psyche-go/psyche/core/coordinator"
	"github.com/psyche-go/psyche/net/frame"
)

// maxDeltas is the maximum number of changes that a client may be behind. Beyond it, the client
// gets the whole payload.
const maxDeltas = 16

// publication is the data that all clients of a run should see, built once for all of them. It is
// immutable.
type publication struct {
	state, peers feed
	log          logStream
	participants int                  // healthy members and pending clients
	claimed      coordinator.Claims   // losses of the newest completed round
	heldOut      coordinator.Claims   // losses of the checkpoint on held-out data
	known        map[identity.ID]bool // members, pending clients and keys with a role
	roleKeys     map[identity.ID]bool // keys with a role in the run
	phase        Phase
	closed       bool   // the run has permanently ended
	definition   []byte // of the run
	name         string // display name in the definition
}

// feed is one kind of payload with its newest changes. next does not modify memory that the previous
// feed uses.
type feed struct {
	version uint64 // 0: no payload yet
	payload []byte
	full    []byte   // whole frame
	deltas  [][]byte // whole frames, newest last; each leads from one version to the next
}

// next returns the feed with a new payload.
func (f feed) next(kind, deltaKind frame.Type, payload []byte) feed {
	n := feed{version: f.version + 1, payload: payload, full: frame.Append(nil, kind, payload)}
	if f.version > 0 {
		old := f.deltas[max(0, len(f.deltas)-maxDeltas+1):]
		n.deltas = append(append(n.deltas, old...), frame.Append(nil, deltaKind, frame.AppendDelta(nil, f.payload, payload)))
	}
	return n
}

// since returns the frames that bring a client from a version to the newest one. It returns the
// changes, or the whole payload if changes are missing or not smaller. whole reports which.
func (f feed) since(version uint64) (frames []byte, whole bool) {
	if version == f.version {
		return nil, false
	}
	behind := f.version - version
	if version == 0 || behind > uint64(len(f.deltas)) {
		return f.full, true
	}
	deltas := f.deltas[len(f.deltas)-int(behind):]
	size := 0
	for _, d := range deltas {
		size += len(d)
	}
	if size >= len(f.full) {
		return f.full, true
	}
	return bytes.Join(deltas, nil), false
}
