package layout

import "github.com/psyche-go/psyche/core/coordinator"

// Sizes of list elements.
const (
	clientSize        = 136
	keySize           = 32
	witnessSize       = 712
	trialSize         = 88
	roundSize         = 31_832
	stretchSize       = 24
	markSize          = 16
	recordedSize      = 40
	uploadSize        = 272
	rollbackGapSize   = 8
	authorizationSize = 176
	ejectionSize      = 40
)

// state visits a whole account, in the order of struct state.
func (a *account) state(s *coordinator.State) {
	sign, version := []byte(magic), uint32(Version)
	a.move(sign)
	a.uint32(&version)
	if string(sign) != magic || version != Version {
		a.fail("magic and version")
	}
	a.uint8((*uint8)(&s.RunState))
	a.bool(&s.PendingPause, "pending pause")
	a.bool(&s.PendingResume, "pending resume")
	a.bool(&s.ColdStart, "cold start")
	a.bool(&s.Closed, "closed")
	a.runID(&s.RunID)
	a.skip(8) // sequence
	a.uint64(&s.StateStart)
	a.uint64(&s.MinimumSince)
	a.uint64(&s.HostNonce)
	a.id(&s.Host)
	a.key(&s.SeedChain)
	a.uint32(&s.Progress.Epoch)
	a.uint32(&s.Progress.Step)
	a.uint64(&s.Progress.DataIndex)
	a.uint32(&s.OriginStep)
	earlier := a.count(len(s.Earlier), coordinator.MaxEarlier, "earlier checkpoints")
	uploads := a.count(len(s.Uploads), coordinator.MaxUploads, "uploads")
	gaps := a.count(len(s.RollbackGaps), coordinator.MaxRollbackGaps, "rollback gaps")
	a.config(&s.Config)
	list(a, &s.Earlier, earlier, coordinator.MaxEarlier, recordedSize, func(r *coordinator.Recorded) {
		a.key(&r.Digest)
		a.uint32(&r.Step)
	})
	list(a, &s.Uploads, uploads, coordinator.MaxUploads, uploadSize, a.upload)
	list(a, &s.RollbackGaps, gaps, coordinator.MaxRollbackGaps, rollbackGapSize, func(l *coordinator.RollbackGap) {
		a.uint32(&l.First)
		a.uint32(&l.Last)
	})
	a.key(&s.Reveals)
	trials := a.count(len(s.Trials), coordinator.MaxTrials, "trials")
	a.skip(4)
	list(a, &s.Trials, trials, coordinator.MaxTrials, trialSize, a.trial)
	a.uint64(&s.Position)
	lost := a.count(len(s.Lost), coordinator.MaxLost, "lost stretches")
	marks := a.count(len(s.Marks), coordinator.MaxMarks, "marks")
	list(a, &s.Lost, lost, coordinator.MaxLost, stretchSize, a.stretch)
	list(a, &s.Marks, marks, coordinator.MaxMarks, markSize, func(m *coordinator.Mark) {
		a.uint32(&m.Step)
		a.skip(4)
		a.uint64(&m.Data)
	})
	a.epoch(s)
	a.clients(&s.Pending, "pending", nil)
	a.clients(&s.Departed, "departed", nil)
	a.authority(&s.Authority)
	a.model(&s.Model)
}

// MaxRunIDLength is the maximum length on the chain, limited by its addresses. Other hosts allow
// more.
const MaxRunIDLength = 32

func (a *account) runID(text *string) {
	n := a.lengths(*text)[0]
	a.skip(6)
	if n > MaxRunIDLength {
		a.fail("run id")
		n = 0
	}
	b := make([]byte, n)
	copy(b, *text)
	a.move(b)
	a.skip(MaxRunIDLength - n)
	if a.reads {
		*text = string(b)
	}
}

func (a *account) config(c *coordinator.Config) {
	for _, v := range []*uint64{
		&c.WarmupTime, &c.CooldownTime, &c.EpochTime, &c.MaxRoundTrainTime, &c.RoundWitnessTime,
		&c.WaitingForMembersExtraTime, &c.GlobalBatchSizeWarmupTokens,
	} {
		a.uint64(v)
	}
	for _, v := range []*uint32{&c.RoundsPerEpoch, &c.GlobalBatchSizeStart, &c.GlobalBatchSizeEnd, &c.TotalSteps, &c.ProbationSteps} {
		a.uint32(v)
	}
	for _, v := range []*uint16{&c.InitMinClients, &c.MinClients, &c.WitnessNodes, &c.EjectionEpochs} {
		a.uint16(v)
	}
	a.uint8(&c.VerificationPercent)
	a.bool(&c.SharesBySpeed, "shares by speed")
	a.bool(&c.RetryLost, "retry lost")
	a.skip(1)
}

func (a *account) stretch(t *coordinator.Stretch) {
	a.uint64(&t.Start)
	a.uint64(&t.End)
	a.uint8(&t.Tries)
	a.skip(7)
}

func (a *account) upload(u *coordinator.Upload) {
	a.id(&u.Reporter)
	a.key(&u.Digest)
	a.uint32(&u.Step)
	a.uint32(&u.Since)
	a.kind(&u.Place.Kind)
	a.uint8(&u.Tries)
	n := a.lengths(u.Place.Repo, u.Place.Revision)
	a.skip(4)
	a.names(&u.Place.Repo, &u.Place.Revision, n[0], n[1])
}

func (a *account) epoch(s *coordinator.State) {
	e := &s.Epoch
	a.uint32(&e.StartStep)
	a.uint32(&e.LastStep)
	a.uint64(&e.StartTime)
	a.bool(&e.ColdStart, "epoch's cold start")
	a.skip(7)
	rounds := a.count(len(e.Rounds), coordinator.StoredRounds, "rounds")
	ready := a.count(len(e.Ready), coordinator.MaxClients, "ready")
	a.uint32(&e.Commit.Step)
	a.skip(4)
	a.key(&e.Commit.Digest)
	a.clients(&e.Clients, "clients", marksOf(s))
	a.clients(&e.Exited, "exited", nil)
	list(a, &e.Ready, ready, coordinator.MaxClients, keySize, a.id)
	list(a, &e.Rounds, rounds, coordinator.StoredRounds, roundSize, func(r *coordinator.Round) { a.round(r, s.Config) })
}

// marks are the program's derived fields of a member.
type marks struct {
	bits uint8 // 1: it is in Epoch.Ready; 2: the run no longer admits it
}

func marksOf(s *coordinator.State) func(coordinator.ClientID) marks {
	e := &s.Epoch
	ready := places(e.Ready, func(id *coordinator.ClientID) coordinator.ClientID { return *id })
	return func(id coordinator.ClientID) marks {
		var m marks
		if ready[id] > 0 {
			m.bits = 1
		}
		if !s.Authority.MayJoin(id) {
			m.bits |= 2
		}
		return m
	}
}

// clients visits a list of clients, with the marks of members.
func (a *account) clients(l *[]coordinator.Client, field string, marked func(coordinator.ClientID) marks) {
	n := a.count(len(*l), coordinator.MaxClients, field)
	a.skip(4)
	list(a, l, n, coordinator.MaxClients, clientSize, func(c *coordinator.Client) {
		a.id(&c.ID)
		a.uint64(&c.Nonce)
		a.uint32(&c.ExitedHeight)
		a.uint32(&c.OptimizerSince)
		a.key(&c.Commitment)
		a.uint8((*uint8)(&c.State))
		a.bool(&c.HoldsModel, field)
		a.bool(&c.Active, field)
		a.uint8((*uint8)(&c.Lateness))
		a.marks(c, marked)
		a.uint32(&c.ProbationUntil)
		a.uint8(&c.Offer)
		a.uint8(&c.Level)
		a.uint8(&c.Juror)
		a.uint8(&c.Voted)
		a.uint32(&c.HoldsEarlier)
		a.uint32(&c.Report.Step)
		a.key(&c.Report.Digest)
	})
}

// marks visits fields of a client that are smaller than a byte, and the next fields. It writes the derived
// marks and never reads them. They are zero for non-members.
func (a *account) marks(c *coordinator.Client, marked func(coordinator.ClientID) marks) {
	var m marks
	if !a.reads {
		if marked != nil {
			m = marked(c.ID)
		}
		m.bits |= bit(c.Waited)<<2 | bit(c.Offered)<<3 | c.Returns<<4 | c.Excuses<<6
	}
	a.uint8(&m.bits)
	if a.reads {
		c.Waited, c.Offered = m.bits>>2&1 == 1, m.bits>>3&1 == 1
		c.Returns, c.Excuses = m.bits>>4&3, m.bits>>6
	}
	a.uint8(&c.Complaints)
	a.uint16(&c.HeldOut)
}

func bit(flag bool) uint8 {
	if flag {
		return 1
	}
	return 0
}

func (a *account) trial(t *coordinator.Trial) {
	a.id(&t.Accused)
	a.id(&t.Accuser)
	a.uint64(&t.SinceTime)
	a.uint32(&t.Step)
	a.uint32(&t.Since)
	for _, v := range []*uint8{&t.Slot, (*uint8)(&t.Fault), &t.Jurors, &t.Guilty, &t.Innocent} {
		a.uint8(v)
	}
	a.skip(3)
}

func (a *account) round(r *coordinator.Round, c coordinator.Config) {
	members, witnesses := uint16(len(r.Members)), uint16(len(r.Witnesses))
	a.uint32(&r.Height)
	a.uint32(&r.Step)
	a.uint64(&r.Seed)
	a.uint64(&r.BatchSeed)
	a.uint64(&r.DataIndex)
	a.uint32(&r.BatchSize)
	a.uint16(&members)
	a.uint16(&witnesses)
	a.uint16(&r.WitnessesNeeded)
	a.uint16(&r.WitnessesElected)
	retries := a.count(len(r.Retries), coordinator.MaxRetries, "retries")
	a.uint64(&r.Position)
	list(a, &r.Retries, retries, coordinator.MaxRetries, stretchSize, a.stretch)
	if members > coordinator.MaxClients || witnesses > coordinator.MaxWitnesses {
		a.fail("lists of a round")
		members, witnesses = 0, 0
	}
	a.move(r.Warming[:])
	a.set(func() []int { return r.Owners(c) })
	a.set(func() []int { return r.ElectedWitnesses(c) })
	a.move(r.Levels[:])
	a.key(&r.Challenge)
	a.move(r.Excused[:])
	list(a, &r.Members, int(members), coordinator.MaxClients, keySize, a.id)
	list(a, &r.Witnesses, int(witnesses), coordinator.MaxWitnesses, witnessSize, func(w *coordinator.Witness) {
		a.uint16(&w.Member)
		a.uint16(&w.Claim.Loss)
		a.uint32(&w.Claim.Speed)
		for i := range w.Participants {
			a.uint64(&w.Participants[i])
		}
		for i := range w.Commitments {
			a.uint64(&w.Commitments[i])
		}
		a.key(&w.CommitmentsRoot)
		a.key(&w.Replica)
	})
}

func (a *account) authority(x *coordinator.Authority) {
	a.id(&x.Main)
	a.id(&x.Join)
	a.uint64(&x.MainNonce)
	a.uint64(&x.JoinNonce)
	a.uint32(&x.Grants)
	a.bool(&x.Permissioned, "permissioned")
	a.skip(3)
	authorizations := a.count(len(x.Authorizations), coordinator.MaxAuthorizations, "authorizations")
	ejections := a.count(len(x.Ejections), coordinator.MaxEjections, "ejections")
	list(a, &x.Authorizations, authorizations, coordinator.MaxAuthorizations, authorizationSize, func(z *coordinator.Authorization) {
		a.id(&z.Grantee)
		a.uint64(&z.Nonce)
		a.uint32(&z.Number)
		n := a.count(len(z.Delegates), coordinator.MaxDelegates, "delegates")
		list(a, &z.Delegates, n, coordinator.MaxDelegates, keySize, a.id)
	})
	list(a, &x.Ejections, ejections, coordinator.MaxEjections, ejectionSize, func(e *coordinator.Ejection) {
		a.id(&e.Client)
		a.uint32(&e.Until)
		a.uint8((*uint8)(&e.Reason))
	})
}

func (a *account) model(m *coordinator.Model) {
	c := &m.Checkpoint
	a.uint32(&m.MaxSeqLen)
	a.uint32(&m.ColdStartWarmupSteps)
	a.kind(&c.Kind)
	a.kind(&c.Origin)
	lengths := a.lengths(c.Repo, c.Revision)
	a.uint32(&c.Step)
	a.key(&c.Digest)
	a.names(&c.Repo, &c.Revision, lengths[0], lengths[1])
	n := a.count(len(m.Definition), coordinator.MaxDefinitionSize, "definition")
	a.skip(4)
	if a.reads && n > 0 {
		m.Definition = make([]byte, n)
	}
	a.move(m.Definition)
	a.skip(coordinator.MaxDefinitionSize - n)
}
