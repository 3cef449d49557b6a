package frame

import (
	"encoding/binary"
	"fmt"

	"github.com/psyche-go/psyche/core/coordinator"
	"github.com/psyche-go/psyche/record/config"
)

// maxRuns bounds how many runs a Runs frame names.
const maxRuns = 256

// maxRunsSize is the size in bytes of the longest payload of a Runs frame.
const maxRunsSize = 2 + 4 + maxRuns*(1+coordinator.MaxRunIDLength+32+2+4+4+2+1+config.MaxName)

// RunSummary is what a server says of one of its runs to those who ask which there are. Nothing proves it.
type RunSummary struct {
	RunID        string
	Run          [32]byte // hash of the run
	Closed       bool
	State        coordinator.RunState
	Epoch, Step  uint32
	Participants uint16 // healthy members and clients that wait
	Name         string // that its main authority gives it; empty for none
}

// AppendRuns appends the payload of a Runs frame; runs beyond maxRuns are counted only.
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

// DecodeRuns reads the payload of a Runs frame. All is how many runs the server has.
func DecodeRuns(payload []byte) (runs []RunSummary, all uint32, err error) {
	d := decoder{rest: payload}
	count := int(d.uint16())
	all = uint32(d.uint16()) | uint32(d.uint16())<<16
	if d.err == nil && (count > maxRuns || uint64(all) < uint64(count)) {
		return nil, 0, fmt.Errorf("%w: %d runs of %d are named, at most %d can be", ErrMalformed, count, all, maxRuns)
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
