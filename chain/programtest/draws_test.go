package programtest

import (
	"errors"
	"slices"

	"github.com/psyche-go/psyche/chain/event"
	"github.com/psyche-go/psyche/chain/program"
	"github.com/psyche-go/psyche/chain/sbpf/runtime"
	"github.com/psyche-go/psyche/chain/transaction"
	"github.com/psyche-go/psyche/core/coordinator"
)

const maxSalt = 32 // maximum bytes of salt in a TICK

// tick sends a tick, with its draw if it needs one.
func (d *deployed) tick(o operation) (uint64, error) {
	if err := d.sendTick(o); err != nil || len(d.last.Data) == 0 {
		return 0, err
	}
	d.want.Armed = 0
	return 1, d.changed(event.Event{Instruction: transaction.RunTick, Draw: d.drawn}, event.Cause{})
}

func (d *deployed) sendTick(o operation) error {
	salt := make([]byte, d.IntN(maxSalt+1))
	return d.invoke(o, nil, append([]byte{transaction.RunTick}, salt...))
}

// prepare sets the clock, which has a resolution of one second on the chain, and advances to a slot
// in which the tick has its draw if it needs one. It returns the time and the draw.
func (d *deployed) prepare(s *coordinator.State, now uint64) (uint64, [32]byte, error) {
	d.sysvars.Clock.UnixTimestamp = int64(now / 1000)
	now = now / 1000 * 1000
	d.drawn = [32]byte{}
	draws := s.RunState == coordinator.WaitingForMembers || s.RunState == coordinator.Warmup || s.RunState == coordinator.RoundWitness
	if at, due := s.Due(now); !draws || !due || at > now {
		return now, d.drawn, nil
	}
	for again := true; again; {
		if slot := d.sysvars.Clock.Slot; d.want.Armed == 0 || slot-d.want.Armed > program.DrawForgotten {
			d.want.Armed = slot
			if err := d.waits(); err != nil {
				return 0, d.drawn, err
			}
		}
		if again = d.IntN(12) == 0; again { // no tick for about as long as the chain remembers the draw
			d.pass(program.DrawForgotten - 2 + uint64(d.IntN(5)))
		}
	}
	slot := d.sysvars.Clock.Slot
	if target := d.want.Armed + program.DrawWait; slot <= target {
		for ; slot <= target; slot = d.sysvars.Clock.Slot { // too early
			if err := d.waits(); err != nil {
				return 0, d.drawn, err
			}
			d.pass(1)
		}
		if err := d.skipped(target); err != nil {
			return 0, d.drawn, err
		}
	}
	d.drawn = d.drawOf(d.want.Armed + program.DrawWait)
	return now, d.drawn, nil
}

// waits sends a tick that may change only the slot since which it waits.
func (d *deployed) waits() error {
	if err := d.sendTick(operation{}); err != nil {
		return err
	}
	if len(d.last.Data) > 0 {
		return errors.New("a tick passes without its draw")
	}
	return d.checkHost()
}

// skipped sometimes skips the target slot and some slots after it. No tick succeeds until a slot
// was not skipped.
func (d *deployed) skipped(target uint64) error {
	if d.IntN(4) > 0 {
		return nil
	}
	known := &d.sysvars.SlotHashes
	*known = slices.DeleteFunc(*known, func(h runtime.SlotHash) bool { return h.Slot >= target })
	d.sysvars.Clock.Slot += uint64(d.IntN(3))
	if err := d.waits(); err != nil {
		return err
	}
	d.pass(1)
	return nil
}

func (d *deployed) drawOf(target uint64) [32]byte {
	known := d.sysvars.SlotHashes
	for i := len(known) - 1; i >= 0; i-- {
		if known[i].Slot >= target {
			return event.Draw(d.run.Key, known[i].Slot, known[i].Hash)
		}
	}
	return [32]byte{}
}
