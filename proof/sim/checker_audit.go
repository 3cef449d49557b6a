package sim

import (
	"crypto/sha256"
	"maps"
	"slices"

	"github.com/psyche-go/psyche/core/coordinator"
)

// challenges are what results are audited by: drawn when their round is over, by what its witnesses
// revealed and by the chain that the next draw went into.
type challenges struct {
	running [32]byte            // what the running round's witnesses revealed
	seeds   map[uint32][32]byte // of rounds that are over, by step
}

func newChallenges() challenges { return challenges{seeds: make(map[uint32][32]byte)} }

func (c *challenges) clone() challenges { return challenges{c.running, maps.Clone(c.seeds)} }

// challengesOf reads them from a state that is not checked against what was before.
func challengesOf(s *coordinator.State) challenges {
	c := newChallenges()
	for i := range s.Epoch.Rounds {
		round := &s.Epoch.Rounds[i]
		if seed, over := s.AuditSeed(round.Step); over {
			c.seeds[round.Step] = seed
		} else {
			c.running = round.Challenge
		}
	}
	return c
}

// reveals checks what a witness revealed: the value that it had committed to, which is what it commits
// to now.
func (c *checker) reveals(s *coordinator.State, from coordinator.ClientID, a coordinator.WitnessRound) {
	if a.Reveal != ([32]byte{}) {
		if sha256.Sum256(a.Reveal[:]) != c.secrets.committed[from] {
			c.violate(AuditsRight, "%s revealed %x in step %d, which it had not committed to", c.world.nameOf(from), a.Reveal[:4], a.Step)
		}
		part := sha256.Sum256(slices.Concat([]byte("psyche/reveal/v1"), from[:], a.Reveal[:]))
		for i := range part {
			c.challenges.running[i] ^= part[i]
		}
		c.secrets.committed[from] = a.Reveal
	}
	if seed, over := s.AuditSeed(a.Step); over {
		c.violate(AuditsRight, "step %d runs, and its audit seed is known: %x", a.Step, seed[:4])
	}
}

// challenged checks the audit seeds of an epoch's rounds when one of them is over.
func (c *checker) challenged(s *coordinator.State, step uint32) {
	c.challenges.seeds[step] = sha256.Sum256(slices.Concat([]byte("psyche/audit/seed/v1"), s.SeedChain[:], c.challenges.running[:]))
	c.challenges.running = [32]byte{}
	for i := range s.Epoch.Rounds {
		of := s.Epoch.Rounds[i].Step
		seed, over := s.AuditSeed(of)
		if want := c.challenges.seeds[of]; over != (of < s.Progress.Step) || over && seed != want {
			c.violate(AuditsRight, "after step %d the audit seed of step %d is %x, by the reveals %x", step, of, seed[:4], want[:4])
		}
	}
}

// blameless checks that the end of a round makes nobody late and drops nobody, whatever its duties
// were: only findings of witnesses do.
func (c *checker) blameless(s *coordinator.State, before stateMark) {
	for i := range before.members {
		m := &before.members[i]
		if m.State != coordinator.Healthy {
			continue
		}
		late := m.Lateness
		if late == coordinator.FoundLate {
			late = coordinator.Late
		}
		if now, stays := s.Member(m.ID); !stays || now.Lateness != late {
			c.violate(NotFramed, "%s was healthy when step %d ended; a member after it: %t", c.world.nameOf(m.ID), before.step, stays)
		}
	}
}
