package programtest

import (
	"crypto/sha256"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"

	"github.com/psyche-go/psyche/core/bloom"
	"github.com/psyche-go/psyche/core/coordinator"
)

const second = 1000

// generator draws the operations of a run.
type generator struct {
	*rand.Rand
	ids    []coordinator.ClientID
	now    uint64
	nonce  uint64
	signed bool // do not draw actions that need signatures of other clients
}

func newGenerator(seed uint64, ids int) *generator {
	g := &generator{Rand: rand.New(rand.NewPCG(seed, 1)), now: 100 * second, nonce: 1}
	for i := range ids {
		g.ids = append(g.ids, clientID(int(seed)*1000+i))
	}
	return g
}

func clientID(i int) coordinator.ClientID { return sha256.Sum256(fmt.Appendf(nil, "client %d", i)) }

// oneOf draws one of the values.
func oneOf[T any](g *generator, values ...T) T { return values[g.IntN(len(values))] }

func (g *generator) id() coordinator.ClientID { return oneOf(g, g.ids...) }

// rarely returns true once in n times.
func (g *generator) rarely(n int) bool { return g.IntN(n) == 0 }

// around draws a number near n: mostly n, otherwise off by one or two.
func (g *generator) around(n uint32) uint32 {
	return n + oneOf[uint32](g, 0, 0, 0, 0, 0, 0, 1, 1<<32-1, 2)
}

// genesis draws a run of a few clients, sometimes with unusual rules.
func (g *generator) genesis() coordinator.Genesis {
	c := coordinator.Config{
		WarmupTime: oneOf[uint64](g, 0, 30*second, 30*second, 30*second, 30*second), CooldownTime: 20 * second, RoundsPerEpoch: uint32(1 + g.IntN(6)), MaxRoundTrainTime: 50 * second,
		RoundWitnessTime: 5 * second, WaitingForMembersExtraTime: 3 * second, GlobalBatchSizeWarmupTokens: uint64(g.IntN(3000)),
		GlobalBatchSizeStart: uint32(1 + g.IntN(4)), GlobalBatchSizeEnd: uint32(4 + g.IntN(40)), TotalSteps: uint32(1 + g.IntN(30)),
		InitMinClients: uint16(2 + g.IntN(2)), MinClients: 2, WitnessNodes: uint16(g.IntN(3)), VerificationPercent: oneOf[uint8](g, 0, 0, 40, 100),
		ProbationSteps: oneOf[uint32](g, 0, 1, 2, 5, 1<<32-1), EjectionEpochs: oneOf[uint16](g, 0, 1, 2, 1<<16-1), SharesBySpeed: g.rarely(2),
	}
	c.RetryLost = g.rarely(2)
	if g.rarely(2) {
		c.RoundsPerEpoch, c.EpochTime = 0, 100*second
	}
	m := coordinator.Model{MaxSeqLen: 16, ColdStartWarmupSteps: uint32(g.IntN(2)), Definition: []byte("definition"), Checkpoint: coordinator.Checkpoint{
		Kind: oneOf(g, coordinator.CheckpointHub, coordinator.CheckpointGcs, coordinator.CheckpointDummy, coordinator.CheckpointLocal), Repo: "repo", Revision: "main",
	}}
	if m.Checkpoint.Kind == coordinator.CheckpointDummy && g.rarely(2) {
		m.Checkpoint.Repo, m.Checkpoint.Revision = "", ""
	}
	x := coordinator.Genesis{RunID: "walk", Host: g.ids[0], Config: c, Model: m, Permissioned: g.rarely(2), Paused: g.rarely(3)}
	if g.rarely(2) {
		x.MainAuthority, x.JoinAuthority = g.ids[1], g.ids[2]
	}
	if g.rarely(4) {
		x.Progress = coordinator.Progress{Epoch: uint32(g.IntN(3)), Step: uint32(g.IntN(10)), DataIndex: uint64(g.IntN(100))}
	}
	return x
}

// secret is the start of the hash chain of all test clients that make commitments. Each link of the
// chain reveals the link after it.
var secret = [32]byte(clientID(-1))

const chainLength = 64

// links maps each link of the chain to the value that reveals it.
var links = func() map[[32]byte][32]byte {
	m := map[[32]byte][32]byte{}
	for at := secret; len(m) < chainLength; {
		next := sha256.Sum256(at[:])
		m[next], at = at, next
	}
	return m
}()

// linkAt returns link n of the chain: the secret, hashed n times.
func linkAt(n int) [32]byte {
	at := secret
	for range n {
		at = sha256.Sum256(at[:])
	}
	return at
}

// commitment draws a commitment to nothing or to a link.
func (g *generator) commitment() [32]byte { return oneOf(g, [32]byte{}, linkAt(1), linkAt(30)) }

// revealOf returns the value that opens a member's commitment, or zero if there is none.
func revealOf(s *coordinator.State, id coordinator.ClientID) [32]byte {
	if client, ok := s.Member(id); ok {
		return links[client.Commitment]
	}
	return [32]byte{}
}

// reveal draws a witness's revealed value: mostly the correct value or none, and sometimes a wrong
// one.
func (g *generator) reveal(s *coordinator.State, id coordinator.ClientID) [32]byte {
	right := revealOf(s, id)
	return oneOf(g, right, right, right, right, [32]byte{}, secret, linkAt(29))
}

// readyOf returns a Ready that opens the client's commitment.
func readyOf(s *coordinator.State, id coordinator.ClientID, next [32]byte) coordinator.Ready {
	return coordinator.Ready{Epoch: s.Progress.Epoch, Reveal: revealOf(s, id), Next: next}
}

// equivocation draws a proof, mostly about a stored round and a known client. It is not signed.
// Hosts must verify signatures, so tests with litesvm, which verifies them, do not use such proofs.
func (g *generator) equivocation(s *coordinator.State) coordinator.Action {
	if recording != nil {
		return coordinator.SetPaused{}
	}
	step := g.around(s.Progress.Step)
	if n := len(s.Epoch.Rounds); n > 0 {
		step = s.Epoch.Rounds[g.IntN(n)].Step
	}
	return equivocationOf(g.id(), step, g.IntN(2) == 0, g.IntN(2) == 0)
}

// equivocationOf returns a proof whose announcements have a head of the log, or none.
func equivocationOf(client coordinator.ClientID, step uint32, heads ...bool) coordinator.Equivocation {
	proof := coordinator.Equivocation{Client: client, Step: step}
	for i, head := range heads {
		m := append([]byte("\x16psyche/announcement/v2\x02"), make([]byte, 121)...)
		le.PutUint32(m[24+32:], step)
		m[24+32+20] = byte(i)
		if head {
			m[len(m)-1] = 1
			m = append(m, make([]byte, 104)...)
		}
		proof.Results[i].Message = string(m)
	}
	return proof
}

// action draws an action that is sometimes valid and often hostile.
func (g *generator) action(s *coordinator.State) coordinator.Action {
	switch g.IntN(23) {
	case 0, 1:
		a := coordinator.Join{Epoch: g.around(s.Progress.Epoch), Commitment: g.commitment()}
		switch g.IntN(6) {
		case 0, 1:
			a.Holds = s.Model.Checkpoint.Digest
		case 2:
			if len(s.Earlier) > 0 {
				a.Holds = oneOf(g, s.Earlier...).Digest
			}
		case 3:
			a.Name = "Ada"
		}
		return a
	case 2:
		return coordinator.Return{Epoch: g.around(s.Progress.Epoch)}
	case 3:
		return coordinator.Ready{Epoch: g.around(s.Progress.Epoch), Reveal: oneOf(g, [32]byte{}, secret), Next: g.commitment()}
	case 4, 5:
		return g.witness(s)
	case 6:
		return g.healthCheck(s)
	case 7:
		return coordinator.ReportCheckpoint{Step: g.around(s.Progress.Step), Digest: modelOf(s.Progress.Step, g.IntN(2)), HeldOut: g.claim().Loss}
	case 8:
		return coordinator.Withdraw{Client: g.id()}
	case 9:
		return coordinator.SetPaused{Paused: g.rarely(2)}
	case 10, 11:
		if g.rarely(3) {
			return g.admission(s)
		}
		return coordinator.Authorize{Grantee: oneOf(g, g.id(), g.id(), g.id(), clientID(g.IntN(1000))), Allowed: !g.rarely(4)}
	case 12, 13:
		return g.delegates(s)
	case 14:
		if !g.signed && g.rarely(2) {
			return g.equivocation(s)
		}
		return coordinator.Eject{Client: g.id()}
	case 15:
		return g.update(s)
	case 16, 17:
		return g.upload(s)
	case 18, 19:
		return g.ofTrials(s)
	case 20, 21:
		return coordinator.Offer{Step: g.around(s.Progress.Step), Level: g.level()}
	default:
		if g.rarely(6) {
			return coordinator.Close{}
		}
		return coordinator.SetPaused{}
	}
}

// level draws a level of a few machines, or an unusual level.
func (g *generator) level() uint8 { return oneOf[uint8](g, 80, 80, 81, 79, 84, 88, 96, 60, 0, 1, 255) }

// admission draws the admission of a client by one of two grants, or the end of an admission.
func (g *generator) admission(s *coordinator.State) coordinator.Admit {
	a := coordinator.Admit{Grant: clientID(-2 - g.IntN(2)), Client: g.id(), Allowed: !g.rarely(4)}
	if known := s.Authority.Authorizations; len(known) > 0 && !a.Allowed && g.rarely(2) {
		if x := oneOf(g, known...); len(x.Delegates) > 0 {
			a.Client = x.Delegates[0]
		}
	}
	return a
}

// witness draws a proof whose filters lack a member, or have one bit more or less than a round can
// set.
func (g *generator) witness(s *coordinator.State) coordinator.WitnessRound {
	a := coordinator.WitnessRound{Step: g.around(s.Progress.Step), CommitmentsRoot: clientID(1), Replica: clientID(2), Claim: g.claim()}
	round := s.CurrentRound()
	if round == nil {
		return a
	}
	missing := g.IntN(2*len(round.Members)) - len(round.Members)
	for i, id := range round.Members {
		if i != missing {
			a.Participants.Add(round.Seed, id[:])
		}
	}
	a.Reveal = oneOf(g, [32]byte{}, secret, linkAt(1), linkAt(29))
	g.overfill(&a, round, s.Config)
	return a
}

func (g *generator) claim() coordinator.Claim {
	return coordinator.Claim{Loss: oneOf(g, 0, 1<<16-1, uint16(g.IntN(1<<16))), Speed: oneOf(g, 0, 1<<32-1, uint32(g.Uint64()))}
}

// overfill gives a filter about as many bits as the round's items can set.
func (g *generator) overfill(a *coordinator.WitnessRound, round *coordinator.Round, c coordinator.Config) {
	switch g.IntN(10) {
	case 0:
		a.Participants = bits(bloom.Hashes*len(round.Members) + g.IntN(3) - 1)
	case 1, 2:
		a.Commitments = bits(bloom.Hashes*len(round.Assignments(c)) + g.IntN(3) - 1)
	}
}

// bits returns a filter with n bits.
func bits(n int) (f bloom.Filter) {
	for i := range n {
		f[i/64] |= 1 << (i % 64)
	}
	return f
}

func (g *generator) healthCheck(s *coordinator.State) coordinator.HealthCheck {
	a := coordinator.HealthCheck{Step: g.around(s.Progress.Step - 1)}
	for range g.IntN(4) {
		a.Clients = append(a.Clients, g.id())
	}
	if g.rarely(2) {
		a.Clients = append(s.Accusable(), a.Clients[:min(len(a.Clients), g.IntN(2))]...)
		if len(a.Clients) > 0 && g.rarely(4) {
			a.Clients = append(a.Clients, a.Clients[0])
		}
	}
	return a
}

func (g *generator) delegates(s *coordinator.State) coordinator.SetDelegates {
	a := coordinator.SetDelegates{Number: uint32(g.IntN(int(min(s.Authority.Grants, 1<<20)) + 2))}
	if len(s.Authority.Authorizations) > 0 && !g.rarely(4) {
		a.Number = oneOf(g, s.Authority.Authorizations...).Number
	}
	for range g.IntN(coordinator.MaxDelegates + 1) {
		a.Delegates = append(a.Delegates, g.id())
	}
	return a
}

// update draws a configuration that is mostly unchanged, with one key near an edge.
func (g *generator) update(s *coordinator.State) coordinator.UpdateConfig {
	u := coordinator.UpdateConfig{Config: s.Config, Model: s.Model}
	switch g.IntN(11) {
	case 0:
		u.Config.TotalSteps = g.around(s.Progress.Step)
	case 1:
		u.Config.WitnessNodes = uint16(g.IntN(4))
	case 2:
		u.Config.VerificationPercent = uint8(g.IntN(120))
	case 3:
		u.Config.GlobalBatchSizeEnd = 1<<32 - 1
		u.Config.GlobalBatchSizeWarmupTokens = g.Uint64() >> g.IntN(64)
	case 4:
		u.Model.MaxSeqLen = uint32(15 + g.IntN(3))
	case 5:
		u.Model.Checkpoint.Repo = "other"
	case 6:
		u.Model.Checkpoint = originOf(s.Model.Checkpoint)
	case 7:
		u.Model.ColdStartWarmupSteps = uint32(g.IntN(4))
	case 8:
		u.Model.Checkpoint = coordinator.Checkpoint{Kind: coordinator.CheckpointGcs, Repo: "new", Revision: "place"}
		u.Model.Definition = []byte("another")
	case 9:
		u.Config.SharesBySpeed = !u.Config.SharesBySpeed
	default:
		u.Config.MinClients = uint16(g.IntN(4))
		u.Config.GlobalBatchSizeStart = uint32(1 + g.IntN(4))
	}
	return u
}

func originOf(c coordinator.Checkpoint) coordinator.Checkpoint {
	if c.FromPeers() {
		return coordinator.Checkpoint{Kind: c.Origin, Repo: c.Repo, Revision: c.Revision}
	}
	return c
}

const commit = "0123456789abcdef0123456789abcdef01234567"

func (g *generator) upload(s *coordinator.State) coordinator.ReportUpload {
	c := s.Model.Checkpoint
	known := append([]coordinator.Recorded{{Step: c.Step, Digest: c.Digest}, {Step: c.Step + 1}}, s.Earlier...)
	r := oneOf(g, known...)
	if g.rarely(6) {
		r.Step = g.around(r.Step)
	}
	if g.rarely(6) { // names of about the maximum number of bytes
		revision := strings.Repeat("v", g.IntN(coordinator.MaxRepoLength))
		repo := strings.Repeat("r", coordinator.MaxRepoLength-len(revision)+g.IntN(3)-1)
		return coordinator.ReportUpload{Step: r.Step, Digest: r.Digest, Place: coordinator.Location{
			Kind: coordinator.CheckpointGcs, Repo: repo[:min(len(repo), coordinator.MaxRepoLength)], Revision: revision,
		}}
	}
	return coordinator.ReportUpload{Step: r.Step, Digest: r.Digest, Place: coordinator.Location{
		Kind:     oneOf(g, coordinator.CheckpointGcs, coordinator.CheckpointGcs, coordinator.CheckpointHub, coordinator.CheckpointLocal),
		Repo:     oneOf(g, "bucket", "bucket", "bucket", "bucket", "bucket", "bucket", "", "a b", "\x7f"),
		Revision: oneOf(g, commit, commit, commit, "", "", "v1", "v2", commit[1:]+"g", commit[1:]+"/", commit[1:]+":", commit+"0", "é"),
	}}
}

// modelOf returns the model that a run's members report for a step: the expected one, or a
// different one.
func modelOf(step uint32, other int) [32]byte { return [32]byte{byte(step), byte(other)} }

func isHealthy(s *coordinator.State, id coordinator.ClientID) bool {
	c, ok := s.Member(id)
	return ok && c.State == coordinator.Healthy
}

// governed returns an action of the main authority in a paused or finished run.
func (g *generator) governed(s *coordinator.State) coordinator.Action {
	switch g.IntN(16) {
	case 0:
		return coordinator.Close{}
	case 1, 2, 3, 4, 5:
		return coordinator.SetPaused{}
	case 6, 7, 8, 9, 10:
		return g.update(s)
	default:
		return nil
	}
}

// honest returns the next action of a client that follows the protocol, sometimes with a missing
// result, or nil if there is none.
func (g *generator) honest(s *coordinator.State, id coordinator.ClientID) coordinator.Action {
	switch {
	case s.RunState == coordinator.Paused || s.RunState == coordinator.Finished:
		return g.governed(s)
	case s.Model.Checkpoint.FromPeers() && g.rarely(max(2, 8-2*len(s.Uploads))):
		return g.upload(s)
	case !isHealthy(s, id) && g.rarely(2) && slices.ContainsFunc(s.Epoch.Exited, func(c coordinator.Client) bool { return c.ID == id }):
		return coordinator.Return{Epoch: s.Progress.Epoch}
	case !isHealthy(s, id) && !s.IsPending(id):
		return coordinator.Join{Epoch: s.Progress.Epoch, Commitment: g.commitment()}
	case g.rarely(2) && len(s.Trials) > 0:
		return g.ofTrials(s)
	case s.RunState == coordinator.Warmup:
		return readyOf(s, id, g.commitment())
	case s.RunState == coordinator.Cooldown:
		return coordinator.ReportCheckpoint{Step: s.Progress.Step, Digest: modelOf(s.Progress.Step, 0), HeldOut: g.claim().Loss}
	case s.RunState != coordinator.RoundTrain && s.RunState != coordinator.RoundWitness:
		return nil
	case g.rarely(3) && s.Progress.Step > s.Epoch.StartStep:
		step := s.Progress.Step - uint32(g.IntN(4)/3)
		return coordinator.ReportCheckpoint{Step: step, Digest: modelOf(step, g.IntN(8)/7), HeldOut: g.claim().Loss}
	}
	if client, _ := s.Member(id); s.Config.SharesBySpeed && client != nil && !client.Offered && g.rarely(3) {
		return coordinator.Offer{Step: s.Progress.Step, Level: g.level()}
	}
	round := s.CurrentRound()
	member, ok := round.MemberIndex(id)
	if !ok || slices.ContainsFunc(round.Witnesses, func(w coordinator.Witness) bool { return int(w.Member) == member }) {
		return nil
	}
	if accusable := s.Accusable(); len(accusable) > 0 {
		return coordinator.HealthCheck{Step: s.Progress.Step - 1, Clients: accusable}
	}
	if !slices.Contains(round.ElectedWitnesses(s.Config), member) {
		return nil
	}
	w := coordinator.WitnessRound{Step: round.Step, Reveal: g.reveal(s, id), Claim: g.claim()}
	drop := g.rarely(3)
	for i, a := range s.Awaited() {
		if !drop || i > 0 {
			w.Participants.Add(round.Seed, round.Members[a.Member][:])
		}
	}
	g.overfill(&w, round, s.Config)
	return w
}

// next draws the sender and the bytes of an action.
func (g *generator) next(s *coordinator.State) (coordinator.ClientID, []byte) {
	a, from := g.action(s), g.id()
	if !g.rarely(5) {
		switch a := a.(type) {
		case coordinator.Authorize:
			from = s.Authority.Join
		case coordinator.SetPaused, coordinator.UpdateConfig, coordinator.Eject, coordinator.Close:
			from = s.Authority.Main
		case coordinator.Admit:
			from = a.Client
		case coordinator.SetDelegates:
			for _, x := range s.Authority.Authorizations {
				if x.Number == a.Number {
					from = x.Grantee
				}
			}
		}
	}
	id := g.id()
	if honest := g.honest(s, id); honest != nil && !g.rarely(4) {
		from, a = id, honest
		if s.RunState == coordinator.Paused || s.RunState == coordinator.Finished {
			from = s.Authority.Main
		}
	}
	body := encode(a)
	if g.rarely(50) {
		body = g.altered(body)
	}
	return from, body
}

// altered changes the bytes of an action.
func (g *generator) altered(body []byte) []byte {
	body = slices.Clone(body)
	switch g.IntN(4) {
	case 0:
		return body[:g.IntN(len(body))]
	case 1:
		return append(body, byte(g.Uint32()))
	default:
		body[g.IntN(min(len(body), 120))] ^= 1 << g.IntN(8)
		return body
	}
}

// walk drives a pair for a number of operations, or until shortly after the end of the run.
func (g *generator) walk(r *pair, operations int) error {
	for range operations {
		if r.s.RunState == coordinator.Finished && g.rarely(8) {
			return nil
		}
		if g.rarely(4) {
			g.now += oneOf[uint64](g, 0, 1, second, second, 5*second, 30*second, 70*second, 1<<64-3*second) // or back by 3 s
			now := g.now
			if g.rarely(30) { // a broken clock
				now = oneOf[uint64](g, 0, 0, 1, 1<<64-1)
			}
			if _, err := r.tick(now, g.Uint64()); err != nil {
				return err
			}
			continue
		}
		from, body := g.next(&r.s)
		if !g.rarely(8) {
			g.nonce++
		}
		if _, err := r.apply(from, g.nonce, body); err != nil {
			return err
		}
	}
	return nil
}
