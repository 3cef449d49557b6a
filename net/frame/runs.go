package frame

import (
	"encoding/binary"
	"fmt"

	"github.com/psyche-go/psyche/core/coordinator"
	"github.com/psyche-go/psyche/record/config"
)

// maxRuns is the maximum number of runs listed in a Runs frame.
const maxRuns = 256

// maxRunsSize is the maximum size in bytes of the payload of a Runs frame.
const maxRunsSize = 2 + 4 + maxRuns*(1+coordinator.MaxRunIDLength+32+2+4+4+2+1+config.MaxName)

// RunSummary describes one run of a server, for clients that list its runs. The client cannot verify
// it.
type RunSummary struct {
	RunID        string
	Run          [32]byte // hash of the run
	Closed       bool
	State        coordinator.RunState
	Epoch, Step  uint32
	Participants uint16 // number of healthy members and pending clients
	Name         string // chosen by its main authority; may be empty
}

// AppendRuns appends the payload of a Runs frame. It lists the first maxRuns runs and the number of
// all.
func AppendRuns(b []byte, runs []RunSummary) []byte {
	named := runs[:min(len(runs), maxRuns)]
	b = binary.LittleEndian.AppendUint16(b, uint16(len(named)))
	b = binary.LittleEndian.AppendUint32(b, uint32(len(runs)))
	for _, r := range named {
		b = append(appendText(b, r.RunID), r.Run[:]...)
		closed := byte(0)
		if r.Closed {
			closed = 1
		}
		b = append(b, closed, byte(r.State))
		b = binary.LittleEndian.AppendUint32(b, r.Epoch)
		b = binary.LittleEndian.AppendUint32(b, r.Step)
		b = binary.LittleEndian.AppendUint16(b, r.Participants)
		b = appendText(b, r.Name)
	}
	return b
}

// DecodeRuns reads the payload of a Runs frame. all is the number of runs of the server.
func DecodeRuns(payload []byte) (runs []RunSummary, all uint32, err error) {
	d := decoder{rest: payload}
	count := int(d.uint16())
	all = uint32(d.uint16()) | uint32(d.uint16())<<16
	if d.err == nil && (count > maxRuns || uint64(all) < uint64(count)) {
		return nil, 0, fmt.Errorf("%w: a list of %d of %d runs, at most %d are allowed", ErrMalformed, count, all, maxRuns)
	}
	for range count {
		var r RunSummary
		r.RunID = d.text(coordinator.MaxRunIDLength)
		copy(r.Run[:], d.bytes(len(r.Run)))
		closed := d.byte()
		r.Closed, r.State = closed == 1, coordinator.RunState(d.byte())
		r.Epoch = uint32(d.uint16()) | uint32(d.uint16())<<16
		r.Step = uint32(d.uint16()) | uint32(d.uint16())<<16
		r.Participants = d.uint16()
		r.Name = d.text(config.MaxName)
		switch {
		case d.err != nil:
			return nil, 0, d.err
		case r.RunID == "" || closed > 1:
			return nil, 0, fmt.Errorf("%w: invalid name of a run", ErrMalformed)
		}
		runs = append(runs, r)
	}
	return runs, all, d.end("runs")
}
