package coordinator

import (
	"bytes"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/cockroachdb/datadriven"

	"github.com/psyche-go/psyche/core/bloom"
	"github.com/psyche-go/psyche/core/merkle"
)

// TestScenarios runs the scripts of testdata: one file for each rule, named after it. With -rewrite
// it replaces the expected output by the actual output.
//
//	new [key=value]…            a run; keys as in state.toml, and origin=Hub|Gcs|Local,
//	                            main=KEY, joins=KEY, permissioned, paused
//	join A B… [holds=DIGEST]    also ready, return, withdraw; [by=A] [nonce=N] [epoch=N]
//	tick T [n=N]                at T seconds, such as 1.25, or after +T; N ticks one second apart
//	witness A… [lost=(A)] [step=N] [filled=participants|commitments]
//	                            "elected" are all elected; without lost they hold the
//	                            results of all members; a filled filter contains everything
//	health A accuse=(B,C) [step=N]
//	accuse A of=B step=N [silent]
//	vote A… of=B step=N guilty|innocent
//	report A… digest=d1|d2 [step=N]
//	upload A… digest=d1 bucket=NAME|hub=NAME [revision=R] [step=N]
//	pause | resume | close [by=A]
//	configure [by=A] [key=value]…  keys as with new, repo=NAME, p2p=DIGEST
//	authorize | revoke A… [by=B] | eject A… [by=B]
//	delegate A to=(B,C) [number=N]
//	accusable                   clients that a health check may accuse
//	assigned                    batches and elected witnesses of the running round
//	counted A…                  clients whose commitment of the round counts
//	fates                       outcome of each batch of each stored round
//	state
//
// After every command the test checks the invariants, and encodes and decodes the state.
func TestScenarios(t *testing.T) {
	datadriven.Walk(t, "testdata/scenarios", func(t *testing.T, path string) {
		var s scenario
		datadriven.RunTest(t, path, func(t *testing.T, d *datadriven.TestData) string {
			out := s.run(t, d)
			s.checkRoundTrip(t, d)
			return out
		})
	})
}

// scenario is a run that a script controls.
type scenario struct {
	state State
	now   uint64
	nonce uint64
	names []string
}

var host = clientID("host")

// clientID returns an ID made from a name.
func clientID(name string) (id ClientID) {
	copy(id[:], name)
	return id
}

func (s *scenario) run(t *testing.T, d *datadriven.TestData) string {
	t.Helper()
	switch d.Cmd {
	case "new":
		return s.create(t, d)
	case "join":
		holds := [32]byte(clientID(text(d, "holds", "")))
		return s.each(d, func(ClientID) Action { return Join{Epoch: number(t, d, "epoch", s.state.Progress.Epoch), Holds: holds} })
	case "upload":
		return s.upload(t, d)
	case "ready":
		return s.each(d, func(ClientID) Action { return Ready{Epoch: number(t, d, "epoch", s.state.Progress.Epoch)} })
	case "return":
		return s.each(d, func(ClientID) Action { return Return{Epoch: number(t, d, "epoch", s.state.Progress.Epoch)} })
	case "withdraw":
		return s.each(d, func(id ClientID) Action { return Withdraw{Client: id} })
	case "tick":
		return s.tick(t, d)
	case "witness":
		return s.witness(t, d)
	case "health":
		accused := make([]ClientID, 0, 4)
		for _, name := range list(d, "accuse") {
			accused = append(accused, clientID(name))
		}
		step := number(t, d, "step", s.state.Progress.Step-1)
		return s.each(d, func(ClientID) Action { return HealthCheck{Step: step, Clients: accused} })
	case "accuse", "vote":
		return s.court(t, d)
	case "report":
		step := number(t, d, "step", s.state.Progress.Step)
		digest := [32]byte(clientID(text(d, "digest", "")))
		return s.each(d, func(ClientID) Action { return ReportCheckpoint{Step: step, Digest: digest} })
	case "pause", "resume":
		return s.outcome("", s.apply(s.governor(d), SetPaused{Paused: d.Cmd == "pause"}))
	case "close":
		return s.outcome("", s.apply(s.governor(d), Close{}))
	case "configure":
		return s.configure(t, d)
	case "authorize", "revoke":
		return s.govern(d, func(id ClientID) Action { return Authorize{Grantee: id, Allowed: d.Cmd == "authorize"} })
	case "eject":
		return s.govern(d, func(id ClientID) Action { return Eject{Client: id} })
	case "delegate":
		return s.delegate(t, d)
	case "fates":
		return s.outcomes()
	case "assigned":
		return s.assigned()
	case "accusable":
		return s.named(ids(s.state.Accusable())) + "\n"
	case "counted":
		return s.counted(d)
	case "state":
		return s.named(s.state.String())
	default:
		t.Fatalf("%s: unknown command %s", d.Pos, d.Cmd)
		return ""
	}
}

// court performs the command accuse or vote. A word without a value is a client's name, silent,
// guilty or innocent.
func (s *scenario) court(t *testing.T, d *datadriven.TestData) string {
	t.Helper()
	said := func(word string) bool {
		i := slices.IndexFunc(d.CmdArgs, func(a datadriven.CmdArg) bool { return a.Key == word })
		if i >= 0 {
			d.CmdArgs = slices.Delete(d.CmdArgs, i, i+1)
		}
		return i >= 0
	}
	accused, step := clientID(text(d, "of", "")), number(t, d, "step", 0)
	if d.Cmd == "vote" {
		guilty := said("guilty")
		if !guilty && !said("innocent") {
			t.Fatalf("%s: want guilty or innocent", d.Pos)
		}
		return s.each(d, func(ClientID) Action { return Vote{Step: step, Client: accused, Guilty: guilty} })
	}
	fault := FaultResult
	if said("silent") {
		fault = FaultSilent
	}
	return s.each(d, func(ClientID) Action { return Accuse{Step: step, Client: accused, Fault: fault} })
}

func (s *scenario) create(t *testing.T, d *datadriven.TestData) string {
	t.Helper()
	genesis := Genesis{RunID: "walk", Host: host, Config: testConfig(), Model: testModel()}
	s.names = nil
	for _, arg := range d.CmdArgs {
		switch arg.Key {
		case "main":
			genesis.MainAuthority = clientID(arg.Vals[0])
			s.names = append(s.names, arg.Vals[0])
		case "joins":
			genesis.JoinAuthority = clientID(arg.Vals[0])
			s.names = append(s.names, arg.Vals[0])
		case "permissioned":
			genesis.Permissioned = true
		case "paused":
			genesis.Paused = true
		default:
			setKey(t, d, &genesis.Config, &genesis.Model, arg)
		}
	}
	state, err := genesis.State()
	if err != nil {
		return "error: " + err.Error() + "\n"
	}
	*s = scenario{state: state, names: append(s.names, "host")}
	return ""
}

// setKey applies one key=value of new or configure.
func setKey(t *testing.T, d *datadriven.TestData, config *Config, model *Model, arg datadriven.CmdArg) {
	t.Helper()
	switch arg.Key {
	case "by":
		return
	case "origin":
		model.Checkpoint.Kind = map[string]CheckpointKind{"Hub": CheckpointHub, "Gcs": CheckpointGcs, "Local": CheckpointLocal}[arg.Vals[0]]
		return
	case "repo":
		model.Checkpoint.Repo = arg.Vals[0]
		return
	case "p2p":
		model.Checkpoint = Checkpoint{
			Kind: CheckpointP2P, Repo: model.Checkpoint.Repo, Origin: CheckpointHub, Digest: clientID(arg.Vals[0]), Step: 1,
		}
		return
	}
	if strings.HasSuffix(arg.Key, "_time") {
		setTime(t, config, arg.Key, milliseconds(t, d, arg.Vals[0]))
		return
	}
	value, err := strconv.ParseUint(arg.Vals[0], 10, 64)
	if err != nil {
		t.Fatalf("%s: %v", d.Pos, err)
	}
	switch arg.Key {
	case "cold_start_warmup_steps":
		model.ColdStartWarmupSteps = uint32(value)
	case "max_seq_len":
		model.MaxSeqLen = uint32(value)
	default:
		setConfig(t, config, arg.Key, value)
	}
}

// upload reports a copy in a bucket, or in a Hub repository at a revision.
func (s *scenario) upload(t *testing.T, d *datadriven.TestData) string {
	t.Helper()
	a := ReportUpload{
		Step:   number(t, d, "step", s.state.Model.Checkpoint.Step),
		Digest: clientID(text(d, "digest", "")),
		Place:  Location{Kind: CheckpointGcs, Repo: text(d, "bucket", "")},
	}
	if a.Place.Repo == "" {
		a.Place = Location{Kind: CheckpointHub, Repo: text(d, "hub", ""), Revision: text(d, "revision", strings.Repeat("0", 40))}
	}
	return s.each(d, func(ClientID) Action { return a })
}

func (s *scenario) outcomes() string {
	var out strings.Builder
	for i := range s.state.Epoch.Rounds {
		if s.state.RunState == RoundTrain && i == len(s.state.Epoch.Rounds)-1 {
			break
		}
		for _, entry := range s.state.Epoch.Rounds[i].Outcomes(s.state.Config) {
			fmt.Fprintf(&out, "step %d %s of %s: %s\n", s.state.Epoch.Rounds[i].Step, entry.Batch, nameOf(entry.Owner), entry.Outcome)
		}
	}
	return out.String()
}

// second is one second in the time unit of the state.
const second = 1000

// testConfig needs three clients and trains two rounds of eight sequences in an epoch.
func testConfig() Config {
	return Config{
		WarmupTime: 30 * second, CooldownTime: 20 * second, RoundsPerEpoch: 2, MaxRoundTrainTime: 60 * second,
		RoundWitnessTime: 2 * second, WaitingForMembersExtraTime: 5 * second,
		GlobalBatchSizeStart: 8, GlobalBatchSizeEnd: 8, TotalSteps: 100,
		InitMinClients: 3, MinClients: 2,
	}
}

func testModel() Model {
	return Model{MaxSeqLen: 16, Checkpoint: Checkpoint{Kind: CheckpointHub, Repo: "base"}, Definition: []byte("llama")}
}

func setTime(t *testing.T, c *Config, key string, ms uint64) {
	t.Helper()
	switch key {
	case "warmup_time":
		c.WarmupTime = ms
	case "cooldown_time":
		c.CooldownTime = ms
	case "epoch_time":
		c.EpochTime, c.RoundsPerEpoch = ms, 0
	case "round_witness_time":
		c.RoundWitnessTime = ms
	case "max_round_train_time":
		c.MaxRoundTrainTime = ms
	case "waiting_for_members_extra_time":
		c.WaitingForMembersExtraTime = ms
	default:
		t.Fatalf("unknown key %s", key)
	}
}

func setConfig(t *testing.T, c *Config, key string, value uint64) {
	t.Helper()
	switch key {
	case "rounds_per_epoch":
		c.RoundsPerEpoch = uint32(value)
	case "global_batch_size":
		c.GlobalBatchSizeStart, c.GlobalBatchSizeEnd = uint32(value), uint32(value)
	case "total_steps":
		c.TotalSteps = uint32(value)
	case "init_min_clients":
		c.InitMinClients = uint16(value)
	case "min_clients":
		c.MinClients = uint16(value)
	case "witness_nodes":
		c.WitnessNodes = uint16(value)
	case "verification_percent":
		c.VerificationPercent = uint8(value)
	case "probation_steps":
		c.ProbationSteps = uint32(value)
	default:
		t.Fatalf("unknown key %s", key)
	}
}

func (s *scenario) apply(from ClientID, a Action) error {
	s.nonce++
	before := s.state.AppendTo(nil)
	err := s.state.Apply(from, s.nonce, a)
	if err != nil && !bytes.Equal(before, s.state.AppendTo(nil)) {
		panic("a refused action changed the state")
	}
	return err
}

// each performs an action for every client that is named without a value.
func (s *scenario) each(d *datadriven.TestData, action func(ClientID) Action) string {
	var out strings.Builder
	for _, name := range s.actors(d) {
		from := clientID(name)
		if by := text(d, "by", ""); by != "" {
			from = clientID(by)
		}
		var err error
		if nonce, ok := value(d, "nonce"); ok {
			n, _ := strconv.ParseUint(nonce, 10, 64)
			err = s.state.Apply(from, n, action(clientID(name)))
		} else {
			err = s.apply(from, action(clientID(name)))
		}
		out.WriteString(s.outcome(name, err))
	}
	return out.String()
}

func (s *scenario) actors(d *datadriven.TestData) []string {
	var names []string
	for _, arg := range d.CmdArgs {
		if len(arg.Vals) > 0 {
			continue
		}
		if arg.Key == "elected" {
			round := s.state.CurrentRound()
			for _, i := range round.ElectedWitnesses(s.state.Config) {
				if id := round.Members[i]; s.state.isHealthy(id) {
					names = append(names, nameOf(id))
				}
			}
			continue
		}
		names = append(names, arg.Key)
	}
	for _, name := range names {
		if !slices.Contains(s.names, name) {
			s.names = append(s.names, name)
		}
	}
	return names
}

func (s *scenario) outcome(name string, err error) string {
	if err == nil {
		return ""
	}
	if name != "" {
		name += ": "
	}
	return name + err.Error() + "\n"
}

// milliseconds parses a time that a script specifies in seconds.
func milliseconds(t *testing.T, d *datadriven.TestData, text string) uint64 {
	t.Helper()
	value, err := strconv.ParseFloat(text, 64)
	if err != nil {
		t.Fatalf("%s: %v", d.Pos, err)
	}
	return uint64(math.Round(value * second))
}

func (s *scenario) tick(t *testing.T, d *datadriven.TestData) string {
	t.Helper()
	when := d.CmdArgs[0].Key
	by := milliseconds(t, d, strings.TrimPrefix(when, "+"))
	if strings.HasPrefix(when, "+") {
		s.now += by
	} else {
		s.now = by
	}
	count := number(t, d, "n", 1)
	var out strings.Builder
	for i := range count {
		if i > 0 {
			s.now += second
		}
		before := s.state.RunState
		step := s.state.Progress.Step
		s.state.Tick(s.now, testDraw(7))
		if after := s.state.RunState; after != before || s.state.Progress.Step != step {
			fmt.Fprintf(&out, "%s: %s -> %s, epoch %d, step %d\n", seconds(s.now), before, after, s.state.Progress.Epoch, s.state.Progress.Step)
		}
	}
	if out.Len() == 0 {
		return "-\n"
	}
	return out.String()
}

// commitment returns the simulated commitment of a trainer's result in a round.
func commitment(id ClientID, step uint32) (c [32]byte) {
	copy(c[:], id[:])
	c[31] = byte(step)
	return c
}

func (s *scenario) witness(t *testing.T, d *datadriven.TestData) string {
	t.Helper()
	round := s.state.CurrentRound()
	if round == nil {
		round = &Round{}
	}
	a := WitnessRound{Step: number(t, d, "step", round.Step)}
	var leaves [][32]byte
	for _, assigned := range round.Assignments(s.state.Config) {
		id := round.Members[assigned.Member]
		if slices.Contains(list(d, "lost"), nameOf(id)) {
			leaves = append(leaves, [32]byte{})
			continue
		}
		c := commitment(id, round.Step)
		a.Participants.Add(round.Seed, id[:])
		a.Commitments.Add(round.Seed, c[:])
		leaves = append(leaves, c)
	}
	a.CommitmentsRoot = merkle.Root(leaves)
	for _, filter := range list(d, "filled") {
		full := bloom.Filter(slices.Repeat([]uint64{^uint64(0)}, len(bloom.Filter{})))
		if filter == "participants" {
			a.Participants = full
		} else {
			a.Commitments = full
		}
	}
	return s.each(d, func(ClientID) Action { return a })
}

func (s *scenario) assigned() string {
	round := s.state.CurrentRound()
	var out strings.Builder
	for _, a := range round.Assignments(s.state.Config) {
		fmt.Fprintf(&out, "%s trains %s\n", nameOf(round.Members[a.Member]), a.Batch)
	}
	elected := round.ElectedWitnesses(s.state.Config)
	out.WriteString("witnesses:")
	for _, i := range elected {
		out.WriteString(" " + nameOf(round.Members[i]))
	}
	out.WriteString("\nawaited:")
	for _, a := range s.state.Awaited() {
		out.WriteString(" " + nameOf(round.Members[a.Member]))
	}
	return out.String() + "\n"
}

// counted reports for each named trainer whether its commitment of the step counts.
func (s *scenario) counted(d *datadriven.TestData) string {
	round := s.state.CurrentRound()
	var out strings.Builder
	for _, name := range s.actors(d) {
		c := commitment(clientID(name), round.Step)
		_, ok := round.counted([][32]byte{c})
		fmt.Fprintf(&out, "%s: %d votes, counted %t\n", name, round.Votes(c), ok)
	}
	return out.String()
}

func (s *scenario) checkRoundTrip(t *testing.T, d *datadriven.TestData) {
	t.Helper()
	if s.state.RunState == Uninitialized {
		return
	}
	if err := s.state.Check(); err != nil {
		t.Errorf("%s: %v", d.Pos, err)
	}
	raw := s.state.AppendTo(nil)
	decoded, err := Decode(raw)
	if err != nil {
		t.Fatalf("%s: decode: %v", d.Pos, err)
	}
	if !bytes.Equal(raw, decoded.AppendTo(nil)) {
		t.Errorf("%s: encoding and decoding changed the state", d.Pos)
	}
	s.state = decoded
}

func nameOf(id ClientID) string { return strings.TrimRight(string(id[:]), "\x00") }

// named replaces the IDs in an output by the names of the script.
func (s *scenario) named(page string) string {
	var pairs []string
	for _, name := range append([]string{"d1", "d2"}, s.names...) {
		pairs = append(pairs, clientID(name).String(), name)
	}
	return strings.NewReplacer(pairs...).Replace(page)
}

func value(d *datadriven.TestData, key string) (string, bool) {
	for _, arg := range d.CmdArgs {
		if arg.Key == key && len(arg.Vals) > 0 {
			return arg.Vals[0], true
		}
	}
	return "", false
}

func text(d *datadriven.TestData, key, missing string) string {
	if v, ok := value(d, key); ok {
		return v
	}
	return missing
}

func list(d *datadriven.TestData, key string) []string {
	for _, arg := range d.CmdArgs {
		if arg.Key == key {
			return arg.Vals
		}
	}
	return nil
}

func number(t *testing.T, d *datadriven.TestData, key string, missing uint32) uint32 {
	t.Helper()
	v, ok := value(d, key)
	if !ok {
		return missing
	}
	n, err := strconv.ParseUint(v, 10, 32)
	if err != nil {
		t.Fatalf("%s: %v", d.Pos, err)
	}
	return uint32(n)
}
