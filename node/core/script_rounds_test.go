package core

import (
	"errors"
	"fmt"
	"time"
)

// train passes what the loop of a client passes for its training.
func (s *script) train(p *Part) {
	if s.pass(Turn{Part: p, Own: s.own, After: s.fact("later"), MaySign: !s.fact("signed")}).Ask && !s.fact("forbids") {
		if s.pass(Permitted{}).Read != nil {
			s.pass(Tokens{s.fact("tokens")})
		}
	}
	if s.fact("pays") {
		s.Outlook = Outlook{Wait: time.Second}
	}
	ready := s.pass(Ahead{
		Part: p, Own: s.own, Replica: s.replica, Lag: max(1, s.step("lag")),
		Next: s.next,
		Speculation: Speculation{
			Begun: s.fact("speculated"), Done: s.fact("speculated"), Possible: true, Leeway: time.Minute,
			Whole: func() bool { return s.fact("whole") },
		},
	})
	if ready.Read != nil && s.pass(Tokens{s.fact("tokens")}).Ask && !s.fact("forbids") {
		if next, applies := s.pass(Permitted{}).Next.(Apply); applies {
			s.early(next.Step)
		}
	}
}

// apply passes what the loop of a client passes for its outstanding rounds.
func (s *script) apply() {
	e := Outstanding{Replica: s.replica, Want: s.step("outstanding"), Known: !s.fact("unknown"), Speculated: s.fact("speculated")}
	if !s.pass(e).Judge {
		return
	}
	if s.pass(Judged{
		Step: s.replica.Step + 1, Outvoted: s.fact("outvoted"), MissingSince: &s.missing, Completion: 30 * time.Second, UnsureTimeout: 2 * time.Second,
		InVain: s.fact("in-vain"), Recorded: s.fact("recorded"), WellAnswered: s.fact("answered"),
		Judge: func(bool) Verdict { return s.verdict() },
	}).Next != nil {
		s.count()
	}
}

// early passes what the loop of a client passes before it trains ahead.
func (s *script) early(want uint32) {
	if s.pass(Early{Step: s.replica.Step + 1, Want: want, Known: !s.fact("unknown"), Outvoted: s.fact("outvoted"), Judge: s.verdict}).Next != nil {
		s.count()
	}
}

// count passes the outcome of a round.
func (s *script) count() {
	s.pass(Counted{Replica: s.replica, Step: s.replica.Step + 1, Confirmed: s.fact("speculated"), Copies: s.copies()})
}

// verdict returns the outcome of a round.
func (s *script) verdict() Verdict {
	v := Verdict{Missing: int(s.step("missing")), Unsure: s.fact("unsure"), Claimed: s.fact("claimed")}
	if s.fact("no-room") {
		v.NoRoom = errors.New("no room")
	}
	return v
}

// copies describes the copies of intermediate checkpoints.
func (s *script) copies() Copies {
	return Copies{
		Busy: s.fact("hashing"), Finished: !s.fact("hashing"), Bytes: int(s.step("megabytes")) << 20, Answered: s.step("for-leaver"),
		Has: func(step uint32) bool { return s.fact("copy") && s.step("copy") == step },
	}
}

// next predicts the client's batch of the next round.
func (s *script) next() Prediction {
	return Prediction{Step: s.round.Step + 1, Batch: batchOf(s.step("next")), OK: s.fact("next")}
}

// starts lists the trainer's next work, and starts some kinds.
func (s *script) starts(e Event, w Work) {
	switch next := w.(type) {
	case Train:
		if next.Ahead {
			fmt.Fprintf(&s.out, "trains step %d ahead\n", next.Step)
		} else {
			fmt.Fprintf(&s.out, "trains step %d\n", next.Step)
		}
		s.trainer = s.Jobs.Start(next, s.cancelled)
	case Rehearse:
		s.out.WriteString("rehearses\n")
		s.trainer = s.Jobs.Start(next, s.cancelled)
	case Speculate:
		fmt.Fprintf(&s.out, "speculates on step %d\n", next.Step)
	case Apply:
		s.applies(e, next)
	case Snapshot:
		fmt.Fprintf(&s.out, "takes the model of step %d\n", next.Step)
	case Load:
		s.load = next
		fmt.Fprintf(&s.out, "loads %s\n", describeLoad(next))
	case Measure:
		s.out.WriteString("measures the model\n")
		s.trainer = s.Jobs.Start(next, s.cancelled)
	case Prepare:
		s.out.WriteString("sets the optimizer up\n")
		s.facts["prepared"] = ""
	case Replay:
		s.replay = next
		if next.Until > next.After {
			fmt.Fprintf(&s.out, "applies the results of steps %d to %d\n", next.After+1, next.Until)
		} else {
			fmt.Fprintf(&s.out, "asks for the replica hash after step %d\n", next.Until)
		}
	}
}

// endsWith lists effects at the end of an epoch, of the run and of the member.
func (s *script) endsWith(ready Ready) {
	if ready.LeaveEpoch {
		s.out.WriteString("leaves the epoch\n")
	}
	if ready.Hasten {
		s.out.WriteString("tries to save the checkpoint soon\n")
	}
	if ready.CopyHeld {
		s.out.WriteString("copies the held model to the disk\n")
	}
	if ready.Gone {
		s.out.WriteString("has nothing left to do\n")
	}
	if ready.End {
		s.out.WriteString("ends\n")
	}
	if ready.Fail != nil {
		fmt.Fprintf(&s.out, "fails: %v\n", ready.Fail)
	}
}
