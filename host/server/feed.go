package server

import (
	"bytes"

	"github.com/psyche-go/psyche/base/identity"
	"github.com/psyche-go/psyche/core/coordinator"
	"github.com/psyche-go/psyche/net/frame"
)

// maxDeltas is how many changes a client may be behind before it gets the whole again.
const maxDeltas = 16

// publication is what every client of a run should see, built once for all of them. It is
// never changed.
type publication struct {
	state, peers feed
	log          logStream
	participants int                  // healthy members and pending clients
	claimed      coordinator.Claims   // losses of the newest round that is over
	known        map[identity.ID]bool // keys that are no strangers
	offices      map[identity.ID]bool // keys that administer the run
	phase        Phase
	closed       bool   // the run, for good
	definition   []byte // of the run
	name         string // that it gives the run
}

// feed is one kind of payload and the newest changes that led to it. The next one shares
// nothing with it that is written to.
type feed struct {
	version uint64 // 0: there is none yet
	payload []byte
	full    []byte   // whole frame
	deltas  [][]byte // whole frames, newest last: each leads from one version to the next
}

// next returns the feed with another payload.
func (f feed) next(kind, deltaKind frame.Type, payload []byte) feed {
	n := feed{version: f.version + 1, payload: payload, full: frame.Append(nil, kind, payload)}
	if f.version > 0 {
		old := f.deltas[max(0, len(f.deltas)-maxDeltas+1):]
		n.deltas = append(append(n.deltas, old...), frame.Append(nil, deltaKind, frame.AppendDelta(nil, f.payload, payload)))
	}
	return n
}

// since returns the frames that bring a client from a version to the newest one: the
// changes, or the whole when they are missing or not smaller. whole says which.
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
