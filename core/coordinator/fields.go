package coordinator

// EncodingVersion is the first byte of an encoded State. It changes with the fields of the encoding.
const EncodingVersion = 13

// state encodes or decodes all fields of a state, in the order of declaration.
func (c *coder) state(s *State) {
	c.version()
	c.text8(&s.RunID, "run id", MaxRunIDLength)
	c.raw(s.Host[:], "host")
	c.authority(&s.Authority)
	c.uint8((*uint8)(&s.RunState), "run state")
	c.uint64(&s.StateStart, "state start")
	c.config(&s.Config)
	c.model(&s.Model)
	c.uint32(&s.Progress.Epoch, "epoch number")
	c.uint32(&s.Progress.Step, "step")
	c.uint64(&s.Progress.DataIndex, "data index")
	c.epoch(&s.Epoch)
	c.uint64(&s.MinimumSince, "minimum since")
	c.raw(s.SeedChain[:], "seed chain")
	c.raw(s.DrawCommitment[:], "commitment of draws")
	c.raw(s.Reveals[:], "reveals")
	c.uint64(&s.HostNonce, "host nonce")
	c.clients(&s.Pending, "pending")
	c.clients(&s.Departed, "departed")
	c.bool(&s.PendingPause, "pending pause")
	c.bool(&s.PendingResume, "pending resume")
	c.bool(&s.ColdStart, "cold start")
	c.bool(&s.Closed, "closed")
	c.uploads(s)
	moveList(c, &s.Trials, "trials", MaxTrials, trialSize, c.trial)
	c.uint64(&s.Position, "position")
	c.stretches(&s.Lost, "lost stretches", MaxLost)
	moveList(c, &s.Marks, "marks", MaxMarks, markSize, func(m *Mark) {
		c.uint32(&m.Step, "marks")
		c.uint64(&m.Data, "marks")
	})
}

// version encodes or decodes the version of the encoding.
func (c *coder) version() {
	v := uint8(EncodingVersion)
	c.uint8(&v, "version")
	if c.err == nil && v != 0 && v < EncodingVersion {
		c.err = &decodeError{Field: "version", Offset: c.at, Version: v}
	}
	c.check(v == EncodingVersion, "version")
}

func (c *coder) authority(a *Authority) {
	c.raw(a.Main[:], "main authority")
	c.raw(a.Join[:], "join authority")
	c.uint64(&a.MainNonce, "main authority's nonce")
	c.uint64(&a.JoinNonce, "join authority's nonce")
	c.bool(&a.Permissioned, "permissioned")
	c.uint32(&a.Grants, "grants")
	moveList(c, &a.Authorizations, "authorizations", MaxAuthorizations, authorizationSize, func(x *Authorization) {
		c.raw(x.Grantee[:], "authorizations")
		c.uint32(&x.Number, "authorizations")
		c.uint64(&x.Nonce, "authorizations")
		c.ids(&x.Delegates, "delegates", MaxDelegates)
	})
	moveList(c, &a.Ejections, "ejections", MaxEjections, ejectionSize, func(e *Ejection) {
		c.raw(e.Client[:], "ejections")
		c.uint32(&e.Until, "ejections")
		c.uint8((*uint8)(&e.Reason), "ejections")
	})
}

// configSize is the number of bytes that config moves.
const configSize = 8*6 + 8 + 4*4 + 2*3 + 1 + 4 + 2 + 2

func (c *coder) config(v *Config) {
	c.uint64(&v.WarmupTime, "warmup_time")
	c.uint64(&v.CooldownTime, "cooldown_time")
	c.uint32(&v.RoundsPerEpoch, "rounds_per_epoch")
	c.uint64(&v.EpochTime, "epoch_time")
	c.uint64(&v.MaxRoundTrainTime, "max_round_train_time")
	c.uint64(&v.RoundWitnessTime, "round_witness_time")
	c.uint64(&v.WaitingForMembersExtraTime, "waiting_for_members_extra_time")
	c.uint64(&v.GlobalBatchSizeWarmupTokens, "global_batch_size_warmup_tokens")
	c.uint32(&v.GlobalBatchSizeStart, "global_batch_size_start")
	c.uint32(&v.GlobalBatchSizeEnd, "global_batch_size_end")
	c.uint32(&v.TotalSteps, "total_steps")
	c.uint16(&v.InitMinClients, "init_min_clients")
	c.uint16(&v.MinClients, "min_clients")
	c.uint16(&v.WitnessNodes, "witness_nodes")
	c.uint8(&v.VerificationPercent, "verification_percent")
	c.uint32(&v.ProbationSteps, "probation_steps")
	c.uint16(&v.EjectionEpochs, "ejection_epochs")
	c.bool(&v.SharesBySpeed, "shares_by_speed")
	c.bool(&v.RetryLost, "retry_lost")
}

func (c *coder) model(m *Model) {
	c.uint32(&m.MaxSeqLen, "max_seq_len")
	c.uint32(&m.ColdStartWarmupSteps, "cold_start_warmup_steps")
	c.uint8((*uint8)(&m.Checkpoint.Kind), "checkpoint kind")
	c.text8(&m.Checkpoint.Repo, "checkpoint repository", MaxRepoLength)
	c.text8(&m.Checkpoint.Revision, "checkpoint revision", MaxRepoLength)
	c.raw(m.Checkpoint.Digest[:], "checkpoint digest")
	c.uint32(&m.Checkpoint.Step, "checkpoint step")
	c.uint8((*uint8)(&m.Checkpoint.Origin), "checkpoint origin")
	if n := c.length(len(m.Definition), "model definition", MaxDefinitionSize, 1); c.reads && n > 0 {
		m.Definition = make([]byte, n)
	}
	c.raw(m.Definition, "model definition")
}

func (c *coder) epoch(e *Epoch) {
	c.uint32(&e.StartStep, "epoch's start step")
	c.uint32(&e.LastStep, "epoch's last step")
	c.uint64(&e.StartTime, "epoch's start time")
	c.bool(&e.ColdStart, "epoch's cold start")
	c.clients(&e.Clients, "clients")
	c.clients(&e.Exited, "exited")
	c.rounds(&e.Rounds)
	c.ids(&e.Ready, "ready", MaxClients)
	c.uint32(&e.Commit.Step, "intermediate checkpoint")
	c.raw(e.Commit.Digest[:], "intermediate checkpoint")
}

// rounds encodes or decodes the rounds, preceded by their number in one byte.
func (c *coder) rounds(rounds *[]Round) {
	n := uint8(len(*rounds))
	c.uint8(&n, "rounds")
	c.check(n <= StoredRounds, "rounds")
	for i := range int(n) {
		if c.err != nil {
			return
		}
		if c.reads {
			*rounds = append(*rounds, Round{})
		}
		c.round(&(*rounds)[i])
	}
}

func (c *coder) round(r *Round) {
	c.uint32(&r.Height, "round height")
	c.uint32(&r.Step, "round step")
	c.uint64(&r.Seed, "round seed")
	c.uint64(&r.BatchSeed, "round batch seed")
	c.uint64(&r.DataIndex, "round data index")
	c.uint32(&r.BatchSize, "round batch size")
	c.uint64(&r.Position, "round position")
	c.stretches(&r.Retries, "retries", MaxRetries)
	c.ids(&r.Members, "round members", MaxClients)
	c.raw(r.Warming[:], "warming members")
	c.raw(r.levels(), "levels")
	c.uint16(&r.WitnessesNeeded, "witnesses needed")
	c.uint16(&r.WitnessesElected, "witnesses elected")
	moveList(c, &r.Witnesses, "witnesses", MaxWitnesses, witnessSize, func(w *Witness) {
		c.uint16(&w.Member, "witness")
		c.filter(&w.Participants)
		c.filter(&w.Commitments)
		c.raw(w.CommitmentsRoot[:], "witness")
		c.raw(w.Replica[:], "witness")
		c.uint16(&w.Claim.Loss, "claim")
		c.uint32(&w.Claim.Speed, "claim")
	})
	c.raw(r.Challenge[:], "challenge")
	c.raw(r.Excused[:], "excused members")
}

func (c *coder) stretches(stretches *[]Stretch, field string, limit int) {
	moveList(c, stretches, field, limit, stretchSize, func(t *Stretch) {
		c.uint64(&t.Start, field)
		c.uint64(&t.End, field)
		c.uint8(&t.Tries, field)
	})
}

func (c *coder) trial(t *Trial) {
	c.uint8(&t.Slot, "trials")
	c.raw(t.Accused[:], "trials")
	c.raw(t.Accuser[:], "trials")
	c.uint32(&t.Step, "trials")
	c.uint8((*uint8)(&t.Fault), "trials")
	c.uint32(&t.Since, "trials")
	c.uint64(&t.SinceTime, "trials")
	c.uint8(&t.Jurors, "trials")
	c.uint8(&t.Guilty, "trials")
	c.uint8(&t.Innocent, "trials")
}

func (c *coder) uploads(s *State) {
	c.uint32(&s.OriginStep, "origin step")
	moveList(c, &s.Earlier, "earlier checkpoints", MaxEarlier, recordedSize, func(r *Recorded) {
		c.uint32(&r.Step, "earlier checkpoints")
		c.raw(r.Digest[:], "earlier checkpoints")
	})
	moveList(c, &s.Uploads, "uploads", MaxUploads, uploadSize, func(u *Upload) {
		c.raw(u.Reporter[:], "uploads")
		c.uint32(&u.Step, "uploads")
		c.raw(u.Digest[:], "uploads")
		c.uint8((*uint8)(&u.Place.Kind), "uploads")
		c.text8(&u.Place.Repo, "uploads", MaxRepoLength)
		c.text8(&u.Place.Revision, "uploads", MaxRepoLength)
		c.uint32(&u.Since, "uploads")
		c.uint8(&u.Tries, "uploads")
	})
	moveList(c, &s.RollbackGaps, "rollback gaps", MaxRollbackGaps, rollbackGapSize, func(l *RollbackGap) {
		c.uint32(&l.First, "rollback gaps")
		c.uint32(&l.Last, "rollback gaps")
	})
}

func (c *coder) clients(clients *[]Client, field string) {
	moveList(c, clients, field, MaxClients, clientSize, func(v *Client) {
		c.raw(v.ID[:], field)
		c.uint8((*uint8)(&v.State), field)
		c.uint64(&v.Nonce, field)
		c.uint32(&v.ExitedHeight, field)
		c.uint32(&v.OptimizerSince, field)
		c.raw(v.Commitment[:], field)
		c.marks(v, field)
		c.uint32(&v.ProbationUntil, field)
		c.uint8(&v.Juror, field)
		c.uint8(&v.Voted, field)
		c.uint8(&v.Complaints, field)
		c.uint8(&v.Offer, field)
		c.uint8(&v.Level, field)
		c.uint8(&v.Excuses, field)
		c.uint32(&v.HoldsEarlier, field)
		c.uint16(&v.HeldOut, field)
		if c.uint32(&v.Report.Step, field); v.Report.Step != 0 {
			c.raw(v.Report.Digest[:], field)
		}
	})
}

// marks encodes or decodes the fields of a client that share one byte.
func (c *coder) marks(v *Client, field string) {
	bits := flags(v.HoldsModel, v.Active) | byte(v.Lateness)<<2 | flags(v.Waited, false)<<4 | v.Returns<<5 | flags(v.Offered, false)<<7
	c.uint8(&bits, field)
	if c.reads {
		v.HoldsModel, v.Active, v.Lateness, v.Waited = bits&1 != 0, bits&2 != 0, Lateness(bits>>2&3), bits&16 != 0
		v.Returns, v.Offered = bits>>5&3, bits&128 != 0
	}
}
