package coordinator

import (
	"strconv"

	"github.com/psyche-go/psyche/core/bloom"
)

// DecodeError says where the bytes of a state are wrong. It wraps ErrMalformed.
type DecodeError struct {
	Field   string
	Offset  int   // of the first byte after what was read
	Version uint8 // of the encoding, when it is an earlier one
}

// Error names the field and the offset, and says what to do about an earlier encoding.
func (e *DecodeError) Error() string {
	if e.Version != 0 {
		return "state of encoding " + strconv.Itoa(int(e.Version)) + ", this program reads " + strconv.Itoa(encodingVersion) +
			": continue with the program that wrote it, or begin a new run from its checkpoint"
	}
	return "malformed state: " + e.Field + " before byte " + strconv.Itoa(e.Offset)
}

// Unwrap returns ErrMalformed.
func (e *DecodeError) Unwrap() error { return ErrMalformed }

// Decode reads a state from exactly its canonical bytes. It refuses, with a
// *DecodeError, what AppendTo would not write and what breaks an invariant (see Check),
// and allocates nothing for a list before it knows that its bytes are there.
func Decode(b []byte) (State, error) {
	var once Decoder
	return once.Decode(b)
}

// Decoder decodes the states of a run one after the other. It refuses what Decode refuses
// and costs less: the witnesses of a round are worked out once, not again with
// every change of the round. The zero Decoder is ready to use. Its states share no memory.
type Decoder struct {
	elections [StoredRounds]election
	oldest    int // of elections, to be replaced next
}

// election is an outcome of assign.Witnesses, and everything that it depends on.
type election struct {
	seed           uint64
	members, nodes int
	elected        MemberSet
}

// elected returns the members that witness a round.
func (d *Decoder) elected(r *Round, c Config) MemberSet {
	e := election{seed: r.Seed, members: len(r.Members), nodes: int(c.WitnessNodes)}
	for i := range d.elections {
		if known := &d.elections[i]; known.seed == e.seed && known.members == e.members && known.nodes == e.nodes {
			return known.elected
		}
	}
	e.elected = r.electedSet(c)
	d.elections[d.oldest] = e
	d.oldest = (d.oldest + 1) % StoredRounds
	return e.elected
}

// Decode is the function Decode.
func (d *Decoder) Decode(b []byte) (State, error) {
	in := decoder{source: b}
	var s State
	in.version()
	s.RunID = in.text8("run id", MaxRunIDLength)
	in.bytes(s.Host[:], "host")
	in.authority(&s.Authority)
	s.RunState = RunState(in.uint8("run state"))
	s.StateStart = in.uint64("state start")
	in.config(&s.Config)
	in.model(&s.Model)
	s.Progress.Epoch = in.uint32("epoch number")
	s.Progress.Step = in.uint32("step")
	s.Progress.DataIndex = in.uint64("data index")
	in.epoch(&s.Epoch)
	s.MinimumSince = in.uint64("minimum since")
	in.bytes(s.SeedChain[:], "seed chain")
	in.bytes(s.DrawCommitment[:], "commitment of draws")
	in.bytes(s.Reveals[:], "reveals")
	s.HostNonce = in.uint64("host nonce")
	s.Pending = in.clients("pending")
	s.Departed = in.clients("departed")
	s.PendingPause = in.bool("pending pause")
	s.PendingResume = in.bool("pending resume")
	s.ColdStart = in.bool("cold start")
	s.Closed = in.bool("closed")
	in.uploads(&s)
	s.Trials = in.trials()
	in.check(in.at == len(in.source), "end")
	if in.err != nil {
		return State{}, in.err
	}
	if broken := s.brokenInvariant(d.elected); broken != "" {
		return State{}, &DecodeError{Field: broken, Offset: len(b)}
	}
	return s, nil
}

// DecodeUpdateConfig reads what UpdateConfig.AppendTo wrote. It refuses, with a
// *DecodeError, every other encoding; whether the values can be is for Apply to say.
func DecodeUpdateConfig(b []byte) (UpdateConfig, error) {
	d := decoder{source: b}
	var u UpdateConfig
	d.config(&u.Config)
	d.model(&u.Model)
	d.check(d.at == len(d.source), "end")
	if d.err != nil {
		return UpdateConfig{}, d.err
	}
	return u, nil
}

// decoder reads from source until its first error; afterwards every read returns zero.
type decoder struct {
	source []byte
	at     int
	err    error
}

func (d *decoder) fail(field string) {
	if d.err == nil {
		d.err = &DecodeError{Field: field, Offset: d.at}
	}
}

// version reads which encoding follows.
func (d *decoder) version() {
	switch v := d.uint8("version"); {
	case d.err != nil || v == encodingVersion:
	case v != 0 && v < encodingVersion:
		d.err = &DecodeError{Field: "version", Offset: d.at, Version: v}
	default:
		d.fail("version")
	}
}

func (d *decoder) check(ok bool, field string) {
	if !ok {
		d.fail(field)
	}
}

// take returns the next n bytes, or nil at an error.
func (d *decoder) take(n int, field string) []byte {
	if d.err != nil {
		return nil
	}
	if n > len(d.source)-d.at {
		d.fail(field)
		return nil
	}
	d.at += n
	return d.source[d.at-n : d.at : d.at]
}

func (d *decoder) bytes(into []byte, field string) { copy(into, d.take(len(into), field)) }

func (d *decoder) uint8(field string) byte {
	if b := d.take(1, field); b != nil {
		return b[0]
	}
	return 0
}

func (d *decoder) uint16(field string) uint16 {
	if b := d.take(2, field); b != nil {
		return le.Uint16(b)
	}
	return 0
}

func (d *decoder) uint32(field string) uint32 {
	if b := d.take(4, field); b != nil {
		return le.Uint32(b)
	}
	return 0
}

func (d *decoder) uint64(field string) uint64 {
	if b := d.take(8, field); b != nil {
		return le.Uint64(b)
	}
	return 0
}

func (d *decoder) bool(field string) bool {
	b := d.uint8(field)
	d.check(b <= 1, field)
	return b == 1
}

func (d *decoder) text8(field string, limit int) string {
	n := int(d.uint8(field))
	d.check(n <= limit, field)
	return string(d.take(n, field))
}

// length reads the length of a list of at most limit elements and makes sure that the
// bytes of so many elements are there.
func (d *decoder) length(field string, limit, elementSize int) int {
	n := int(d.uint16(field))
	d.check(n <= limit && n*elementSize <= len(d.source)-d.at, field)
	if d.err != nil {
		return 0
	}
	return n
}

func (d *decoder) authority(a *Authority) {
	d.bytes(a.Main[:], "main authority")
	d.bytes(a.Join[:], "join authority")
	a.MainNonce = d.uint64("main authority's nonce")
	a.JoinNonce = d.uint64("join authority's nonce")
	a.Permissioned = d.bool("permissioned")
	a.Grants = d.uint32("grants")
	n := d.length("authorizations", MaxAuthorizations, authorizationSize)
	if n > 0 {
		a.Authorizations = make([]Authorization, n)
	}
	for i := range a.Authorizations {
		x := &a.Authorizations[i]
		d.bytes(x.Grantee[:], "authorizations")
		x.Number = d.uint32("authorizations")
		x.Nonce = d.uint64("authorizations")
		x.Delegates = d.ids("delegates", MaxDelegates)
	}
	n = d.length("ejections", MaxEjections, ejectionSize)
	if n > 0 {
		a.Ejections = make([]Ejection, n)
	}
	for i := range a.Ejections {
		d.bytes(a.Ejections[i].Client[:], "ejections")
		a.Ejections[i].Until = d.uint32("ejections")
		a.Ejections[i].Reason = EjectionReason(d.uint8("ejections"))
	}
}

func (d *decoder) config(c *Config) {
	c.WarmupTime = d.uint64("warmup_time")
	c.CooldownTime = d.uint64("cooldown_time")
	c.RoundsPerEpoch = d.uint32("rounds_per_epoch")
	c.EpochTime = d.uint64("epoch_time")
	c.MaxRoundTrainTime = d.uint64("max_round_train_time")
	c.RoundWitnessTime = d.uint64("round_witness_time")
	c.WaitingForMembersExtraTime = d.uint64("waiting_for_members_extra_time")
	c.GlobalBatchSizeWarmupTokens = d.uint64("global_batch_size_warmup_tokens")
	c.GlobalBatchSizeStart = d.uint32("global_batch_size_start")
	c.GlobalBatchSizeEnd = d.uint32("global_batch_size_end")
	c.TotalSteps = d.uint32("total_steps")
	c.InitMinClients = d.uint16("init_min_clients")
	c.MinClients = d.uint16("min_clients")
	c.WitnessNodes = d.uint16("witness_nodes")
	c.VerificationPercent = d.uint8("verification_percent")
	c.ProbationSteps = d.uint32("probation_steps")
	c.EjectionEpochs = d.uint16("ejection_epochs")
}

func (d *decoder) model(m *Model) {
	m.MaxSeqLen = d.uint32("max_seq_len")
	m.ColdStartWarmupSteps = d.uint32("cold_start_warmup_steps")
	m.Checkpoint.Kind = CheckpointKind(d.uint8("checkpoint kind"))
	m.Checkpoint.Repo = d.text8("checkpoint repository", MaxRepoLength)
	m.Checkpoint.Revision = d.text8("checkpoint revision", MaxRepoLength)
	d.bytes(m.Checkpoint.Digest[:], "checkpoint digest")
	m.Checkpoint.Step = d.uint32("checkpoint step")
	m.Checkpoint.Origin = CheckpointKind(d.uint8("checkpoint origin"))
	if n := d.length("model definition", MaxDefinitionSize, 1); n > 0 {
		m.Definition = append([]byte(nil), d.take(n, "model definition")...)
	}
}

func (d *decoder) epoch(e *Epoch) {
	e.StartStep = d.uint32("epoch's start step")
	e.LastStep = d.uint32("epoch's last step")
	e.StartTime = d.uint64("epoch's start time")
	e.ColdStart = d.bool("epoch's cold start")
	e.Clients = d.clients("clients")
	e.Exited = d.clients("exited")
	rounds := int(d.uint8("rounds"))
	d.check(rounds <= StoredRounds, "rounds")
	for range rounds {
		if d.err != nil {
			return
		}
		var r Round
		d.round(&r)
		e.Rounds = append(e.Rounds, r)
	}
	e.Ready = d.ids("ready", MaxClients)
	e.Commit.Step = d.uint32("commit point")
	d.bytes(e.Commit.Digest[:], "commit point")
}

func (d *decoder) trials() []Trial {
	n := d.length("trials", MaxTrials, trialSize)
	if n == 0 {
		return nil
	}
	trials := make([]Trial, n)
	for i := range trials {
		d.trial(&trials[i])
	}
	return trials
}

func (d *decoder) trial(t *Trial) {
	t.Slot = d.uint8("trials")
	d.bytes(t.Accused[:], "trials")
	d.bytes(t.Accuser[:], "trials")
	t.Step = d.uint32("trials")
	t.Fault = Fault(d.uint8("trials"))
	t.Since = d.uint32("trials")
	t.SinceTime = d.uint64("trials")
	t.Jurors = d.uint8("trials")
	t.Guilty = d.uint8("trials")
	t.Innocent = d.uint8("trials")
}

func (d *decoder) round(r *Round) {
	r.Height = d.uint32("round height")
	r.Step = d.uint32("round step")
	r.Seed = d.uint64("round seed")
	r.BatchSeed = d.uint64("round batch seed")
	r.DataIndex = d.uint64("round data index")
	r.BatchSize = d.uint32("round batch size")
	r.Members = d.ids("round members", MaxClients)
	d.bytes(r.Warming[:], "warming members")
	r.WitnessesNeeded = d.uint16("witnesses needed")
	r.WitnessesElected = d.uint16("witnesses elected")
	n := d.length("witnesses", MaxWitnesses, witnessSize)
	if n > 0 {
		r.Witnesses = make([]Witness, n)
	}
	for i := range r.Witnesses {
		w := &r.Witnesses[i]
		w.Member = d.uint16("witness")
		d.filter(&w.Participants)
		d.filter(&w.Commitments)
		d.bytes(w.CommitmentsRoot[:], "witness")
		d.bytes(w.Replica[:], "witness")
		w.Claim = Claim{Loss: d.uint16("claim"), Speed: d.uint32("claim")}
	}
	d.bytes(r.Challenge[:], "challenge")
}

func (d *decoder) filter(filter *bloom.Filter) {
	words := d.take(filterSize, "filter")
	for i := range len(words) / 8 {
		filter[i] = le.Uint64(words[8*i:])
	}
}

func (d *decoder) uploads(s *State) {
	s.OriginStep = d.uint32("origin step")
	if n := d.length("earlier checkpoints", MaxEarlier, recordedSize); n > 0 {
		s.Earlier = make([]Recorded, n)
	}
	for i := range s.Earlier {
		s.Earlier[i].Step = d.uint32("earlier checkpoints")
		d.bytes(s.Earlier[i].Digest[:], "earlier checkpoints")
	}
	if n := d.length("uploads", MaxUploads, uploadSize); n > 0 {
		s.Uploads = make([]Upload, n)
	}
	for i := range s.Uploads {
		u := &s.Uploads[i]
		d.bytes(u.Reporter[:], "uploads")
		u.Step = d.uint32("uploads")
		d.bytes(u.Digest[:], "uploads")
		u.Place.Kind = CheckpointKind(d.uint8("uploads"))
		u.Place.Repo = d.text8("uploads", MaxRepoLength)
		u.Place.Revision = d.text8("uploads", MaxRepoLength)
		u.Since = d.uint32("uploads")
		u.Tries = d.uint8("uploads")
	}
	if n := d.length("lapses", MaxLapses, lapseSize); n > 0 {
		s.Lapses = make([]Lapse, n)
	}
	for i := range s.Lapses {
		s.Lapses[i].First = d.uint32("lapses")
		s.Lapses[i].Last = d.uint32("lapses")
	}
}

func (d *decoder) clients(field string) []Client {
	n := d.length(field, MaxClients, clientSize)
	if n == 0 {
		return nil
	}
	clients := make([]Client, n)
	for i := range clients {
		c := &clients[i]
		d.bytes(c.ID[:], field)
		c.State = ClientState(d.uint8(field))
		c.Nonce = d.uint64(field)
		c.ExitedHeight = d.uint32(field)
		c.OptimizerSince = d.uint32(field)
		d.bytes(c.Commitment[:], field)
		bits := d.uint8(field)
		c.HoldsModel, c.Active, c.Lateness, c.Waited = bits&1 != 0, bits&2 != 0, Lateness(bits>>2&3), bits&16 != 0
		c.Returns = bits >> 5 & 3
		d.check(bits&128 == 0, field)
		c.ProbationUntil = d.uint32(field)
		c.Juror, c.Voted, c.Complaints = d.uint8(field), d.uint8(field), d.uint8(field)
		c.HoldsEarlier = d.uint32(field)
		if c.Report.Step = d.uint32(field); c.Report.Step != 0 {
			d.bytes(c.Report.Digest[:], field)
		}
	}
	return clients
}

func (d *decoder) ids(field string, limit int) []ClientID {
	n := d.length(field, limit, len(ClientID{}))
	if n == 0 {
		return nil
	}
	ids := make([]ClientID, n)
	for i := range ids {
		d.bytes(ids[i][:], field)
	}
	return ids
}
