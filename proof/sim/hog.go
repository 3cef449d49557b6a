package sim

import (
	"context"
	"encoding/binary"
	"time"

	"github.com/psyche-go/psyche/core/coordinator"
	"github.com/psyche-go/psyche/node/auditor"
	"github.com/psyche-go/psyche/proof/sim/links"
	"github.com/psyche-go/psyche/proof/sim/scenario"
)

// Requests of a hog to its victim in one round.
const (
	hogsOpenings = 8 // concurrent requests
	hogsBlobs    = 8
	hogPause     = second / 2 // after a refusal
	hogTime      = 60 * time.Second
)

// hog requests openings and results of members on slow links, many at a time, once per round. Some
// hogs read as slowly as they can.
func (p *process) hog(s *coordinator.State) {
	m, step := p.machine, s.Progress.Step
	if !m.HasRole(scenario.Hog) || p.court.hogged == step || s.RunState != coordinator.RoundTrain || step < 2 {
		return
	}
	p.court.hogged = step
	slow := p.world.plan.Links.Slow
	victim := p.world.machines[slow[(int(step)+m.Index)%len(slow)]].Member
	pace := []int64{0, 0, 2000, 1}[m.Index%4]
	var announced [][32]byte
	for of := max(step, 4) - 3; of < step; of++ {
		for _, s := range p.world.registry.OfStep(of) {
			if s.Author == victim.ID {
				announced = append(announced, s.Announcement.Blob)
			}
		}
	}
	for i := range hogsOpenings {
		of := step - 1 - uint32(i)%min(step-1, 3)
		request := binary.LittleEndian.AppendUint32(victim.ID[:], of)
		request = append(request, requestTail[:]...)
		p.repeat(step, func(ctx context.Context) error {
			answer, err := p.linkedRequest(ctx, victim.ID, auditor.OpeningProtocol, request, pace)
			if err == nil && auditor.PartsIn(answer) == 0 {
				err = errNotHeld // for now
			}
			return err
		})
	}
	for i := 0; i < hogsBlobs && len(announced) > 0; i++ {
		hash := announced[i%len(announced)]
		p.repeat(step, func(ctx context.Context) error {
			_, err := p.linkedFetch(ctx, hash, victim.ID, pace)
			return err
		})
	}
}

// requestTail follows the step in requests for openings: it requests all chunks.
var requestTail = []byte{255, 255, 255, 255, 255, 255, 255, 255}

// repeat repeats a request during a round.
func (p *process) repeat(step uint32, ask func(ctx context.Context) error) {
	p.world.workers.Run(func() {
		ctx, cancel := p.WithTimeout(p.root, hogTime)
		defer cancel()
		for ctx.Err() == nil && p.alive && p.newest != nil && p.newest.Progress.Step == step {
			if ask(ctx) != nil && p.wait(ctx, p.world.now+hogPause) != nil {
				return
			}
		}
	})
}

// openTo returns the answer of a member to a request for an opening, modified if the member
// withholds openings.
func (p *process) openTo(asker *process, request, response []byte, err error, reply *links.Message) ([]byte, error) {
	if p.refusesToOpen(asker, request) {
		reply.Bytes = framing
		return nil, errNotHeld
	}
	r, ok := openedResult(request)
	m := p.machine
	if !ok || err != nil || !m.HasRole(scenario.Withhold) || r.trainer != coordinator.ClientID(m.ID) || asker.machine.HasRole(scenario.ByzantineOnLinks) {
		return response, err
	}
	if p.court.firstRequest[r] == 0 {
		p.court.firstRequest[r] = p.world.now
	}
	switch p.world.plan.Links.Manner {
	case scenario.Disconnects:
		reply.Bytes = framing
		return nil, errUnreachable
	case scenario.Trickles:
		reply.Pace = 1
	case scenario.ServesWrong:
		return make([]byte, len(response)), nil
	case scenario.ServesOne:
		if first, known := p.court.served[r]; known && first != asker.machine.Index {
			reply.Bytes = framing
			return nil, errNotHeld
		}
		p.court.served[r] = asker.machine.Index
	case scenario.StaysBusy:
		reply.Bytes = framing
		return askLater, nil
	case scenario.WithholdsOne:
		if len(request) == 36 { // for all chunks
			reply.Bytes = framing
			return askLater, nil
		}
	}
	return response, nil
}

// askLater is the answer of a busy member: a wait in milliseconds.
var askLater = binary.LittleEndian.AppendUint32(nil, 1000)

// withoutOne removes the chunk that a member withholds from a request for an opening. others is
// false if the request is for that chunk only.
func (p *process) withoutOne(asker *process, request []byte) (changed []byte, others bool) {
	r, ok := openedResult(request)
	m := p.machine
	if !ok || len(request) != 44 || !m.HasRole(scenario.Withhold) || p.world.plan.Links.Manner != scenario.WithholdsOne ||
		r.trainer != coordinator.ClientID(m.ID) || asker.machine.HasRole(scenario.ByzantineOnLinks) {
		return request, true
	}
	if p.court.firstRequest[r] == 0 {
		p.court.firstRequest[r] = p.world.now
	}
	wanted := binary.LittleEndian.Uint64(request[36:]) &^ 1
	return binary.LittleEndian.AppendUint64(request[:36:36], wanted), wanted != 0
}
