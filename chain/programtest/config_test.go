package programtest

import (
	"bytes"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/psyche-go/psyche/chain/layout"
	"github.com/psyche-go/psyche/core/coordinator"
)

// edges are values at which the result of a rule may change.
var edges = []uint64{
	0, 1, 2, 3, 31, 32, 33, 100, 101, 255, 256, 257, 1<<16 - 1, 1<<32 - 2, 1<<32 - 1, 1 << 32,
	coordinator.MaxTime - 1, coordinator.MaxTime, coordinator.MaxTime + 1, 1<<64 - 1,
}

// settings are setters for the fields of a configuration. A setter truncates its value to the size
// of the field.
var settings = map[string]func(*coordinator.UpdateConfig, uint64){
	"warmup time":       func(u *coordinator.UpdateConfig, v uint64) { u.Config.WarmupTime = v },
	"cooldown time":     func(u *coordinator.UpdateConfig, v uint64) { u.Config.CooldownTime = v },
	"rounds per epoch":  func(u *coordinator.UpdateConfig, v uint64) { u.Config.RoundsPerEpoch = uint32(v) },
	"epoch time":        func(u *coordinator.UpdateConfig, v uint64) { u.Config.EpochTime = v },
	"train time":        func(u *coordinator.UpdateConfig, v uint64) { u.Config.MaxRoundTrainTime = v },
	"witness time":      func(u *coordinator.UpdateConfig, v uint64) { u.Config.RoundWitnessTime = v },
	"extra time":        func(u *coordinator.UpdateConfig, v uint64) { u.Config.WaitingForMembersExtraTime = v },
	"warmup tokens":     func(u *coordinator.UpdateConfig, v uint64) { u.Config.GlobalBatchSizeWarmupTokens = v },
	"batch size start":  func(u *coordinator.UpdateConfig, v uint64) { u.Config.GlobalBatchSizeStart = uint32(v) },
	"batch size end":    func(u *coordinator.UpdateConfig, v uint64) { u.Config.GlobalBatchSizeEnd = uint32(v) },
	"total steps":       func(u *coordinator.UpdateConfig, v uint64) { u.Config.TotalSteps = uint32(v) },
	"init min clients":  func(u *coordinator.UpdateConfig, v uint64) { u.Config.InitMinClients = uint16(v) },
	"min clients":       func(u *coordinator.UpdateConfig, v uint64) { u.Config.MinClients = uint16(v) },
	"witness nodes":     func(u *coordinator.UpdateConfig, v uint64) { u.Config.WitnessNodes = uint16(v) },
	"verification":      func(u *coordinator.UpdateConfig, v uint64) { u.Config.VerificationPercent = uint8(v) },
	"probation":         func(u *coordinator.UpdateConfig, v uint64) { u.Config.ProbationSteps = uint32(v) },
	"ejection epochs":   func(u *coordinator.UpdateConfig, v uint64) { u.Config.EjectionEpochs = uint16(v) },
	"sequence length":   func(u *coordinator.UpdateConfig, v uint64) { u.Model.MaxSeqLen = uint32(v) },
	"cold start":        func(u *coordinator.UpdateConfig, v uint64) { u.Model.ColdStartWarmupSteps = uint32(v) },
	"checkpoint kind":   func(u *coordinator.UpdateConfig, v uint64) { u.Model.Checkpoint.Kind = coordinator.CheckpointKind(v) },
	"checkpoint origin": func(u *coordinator.UpdateConfig, v uint64) { u.Model.Checkpoint.Origin = coordinator.CheckpointKind(v) },
	"checkpoint step":   func(u *coordinator.UpdateConfig, v uint64) { u.Model.Checkpoint.Step = uint32(v) },
	"checkpoint digest": func(u *coordinator.UpdateConfig, v uint64) { le.PutUint64(u.Model.Checkpoint.Digest[8:], v) },
	"checkpoint names": func(u *coordinator.UpdateConfig, v uint64) {
		u.Model.Checkpoint.Repo = strings.Repeat("r", int(v&0xff))
	},
	"revision": func(u *coordinator.UpdateConfig, v uint64) {
		u.Model.Checkpoint.Revision = strings.Repeat("v", int(v&0xff))
	},
	"definition's size": func(u *coordinator.UpdateConfig, v uint64) {
		u.Model.Definition = bytes.Repeat([]byte("d"), int(v&0x3fff))
	},
	"definition at most": func(u *coordinator.UpdateConfig, v uint64) {
		u.Model.Definition = bytes.Repeat([]byte("d"), 8191+int(v&1))
	},
}

// configurations sets every field to every edge and to the value of another field plus or minus
// one, in runs whose epochs end by rounds and by time.
func configurations(r *pair) error {
	byRounds := coordinator.UpdateConfig{Config: crowdConfig, Model: crowdModel}
	byRounds.Config.WitnessNodes, byRounds.Config.InitMinClients, byRounds.Config.MinClients = 33, 256, 40
	byRounds.Config.WitnessNodes = 32
	byTime := coordinator.UpdateConfig{Config: crowdConfig, Model: crowdModel}
	byTime.Config.RoundsPerEpoch, byTime.Config.EpochTime = 0, 200*second
	byTime.Model.ColdStartWarmupSteps = 0 // which would also refuse a time that is too long
	fromPeers := byTime
	fromPeers.Model.Checkpoint = coordinator.Checkpoint{Kind: coordinator.CheckpointP2P, Origin: coordinator.CheckpointHub, Repo: "repo", Step: 4, Digest: clientID(1)}
	local := byRounds
	local.Model.Checkpoint = coordinator.Checkpoint{Kind: coordinator.CheckpointDummy}
	if _, err := r.genesis(coordinator.Genesis{RunID: "config", Host: clientID(0), Config: crowdConfig, Model: crowdModel, Paused: true, Progress: coordinator.Progress{Epoch: 1, Step: 5}}); err != nil {
		return err
	}
	nonce := uint64(0)
	for _, base := range []coordinator.UpdateConfig{byRounds, byTime, fromPeers, local} {
		for _, name := range slices.Sorted(maps.Keys(settings)) {
			set := settings[name]
			for _, value := range edgesOf(base.Config) {
				u := base
				set(&u, value)
				nonce++
				if _, err := r.apply(clientID(0), nonce, encode(u)); err != nil {
					return fmt.Errorf("%s of %d: %w", name, value, err)
				}
			}
		}
	}
	return nil
}

func edgesOf(c coordinator.Config) []uint64 {
	values := edges
	for _, v := range []uint64{
		c.WarmupTime, c.EpochTime, c.MaxRoundTrainTime, uint64(c.RoundsPerEpoch), uint64(c.GlobalBatchSizeStart), uint64(c.GlobalBatchSizeEnd),
		uint64(c.InitMinClients), uint64(c.MinClients), 4, 5, 6, 7, 8, 152, 153, 188, 189, 192, 193, 8192, 8193,
	} {
		values = append(values[:len(values):len(values)], v-1, v, v+1)
	}
	return values
}

// geneses begins runs with many run IDs, progresses and authorities.
func geneses(r *pair) error {
	base := coordinator.Genesis{RunID: "genesis", Host: clientID(0), Config: crowdConfig, Model: crowdModel}
	var all []coordinator.Genesis
	for _, id := range []string{"", "a", strings.Repeat("x", layout.MaxRunIDLength), strings.Repeat("x", coordinator.MaxRunIDLength+1), "a b", "a\x1f", "\x7f", "\x80é"} {
		g := base
		g.RunID = id
		all = append(all, g)
	}
	for _, p := range []coordinator.Progress{
		{}, {Step: 1}, {Epoch: 1}, {DataIndex: 1}, {Epoch: 1, Step: 1}, {Epoch: 1, Step: 2}, {Epoch: 2, Step: 2},
		{Step: 1, DataIndex: 1}, {Step: 2, DataIndex: 1<<32 - 1}, {Step: 2, DataIndex: 1 << 32}, {Step: 3, DataIndex: 2 * (1<<32 - 1)},
		{Step: 1000}, {Step: 1001}, {Step: 999, DataIndex: 998 * (1<<32 - 1)}, {Step: 1000, DataIndex: 1<<64 - 1},
	} {
		g := base
		g.Progress = p
		all = append(all, g)
	}
	for i := range 8 {
		g := base
		g.Permissioned, g.Paused = i&1 != 0, i&2 != 0
		if i&4 != 0 {
			g.MainAuthority = clientID(1)
		}
		all = append(all, g)
		g.JoinAuthority = clientID(2)
		all = append(all, g)
	}
	for kind := range coordinator.CheckpointKind(9) {
		g := base
		g.Model.Checkpoint.Kind = kind
		all = append(all, g)
		g.Model.Checkpoint.Origin = coordinator.CheckpointHub
		g.Model.Checkpoint.Repo = ""
		all = append(all, g)
	}
	for i, g := range all {
		if _, err := r.genesis(g); err != nil {
			return fmt.Errorf("%d: %w", i, err)
		}
	}
	body := layout.AppendGenesis(nil, base)
	step := 1
	if _, ok := r.c.(chooses); ok {
		step = 41 // each takes a millisecond on the chain's machine
	}
	for n := 0; n < len(body); n += step { // shorter, longer, or with unknown flags: never accepted, and never read outside their bytes
		if a, err := r.do(operation{kind: opGenesis, body: body[:n]}); err != nil || a.result != uint64(coordinator.ErrMalformed) {
			return differ("%d of %d bytes: %+v %v", n, len(body), a, err)
		}
	}
	body[96] = 4
	for _, bad := range [][]byte{body, append(layout.AppendGenesis(nil, base), 0)} {
		if a, err := r.do(operation{kind: opGenesis, body: bad}); err != nil || a.result != uint64(coordinator.ErrMalformed) {
			return differ("%+v %v", a, err)
		}
	}
	return nil
}

// batchSizes checks the 128-bit arithmetic.
func batchSizes(r *pair) error {
	g := newGenerator(1, 3)
	for _, edge := range []struct {
		warmup     uint64
		start, end uint32
		seqLen     uint32
		data       uint64
		want       uint32
	}{
		{1 << 63, 1, 1 << 31, 1 << 24, 1 << 40, 1 << 31}, // more tokens than 64 bits can represent
		{1 << 20, 1, 2, 16, 1 << 15, 2},                  // half a sequence is rounded up
		{1<<20 + 32, 1, 2, 16, 1 << 15, 1},
	} {
		config, model := crowdConfig, crowdModel
		config.GlobalBatchSizeWarmupTokens, config.GlobalBatchSizeStart, config.GlobalBatchSizeEnd = edge.warmup, edge.start, edge.end
		model.Definition, model.MaxSeqLen = nil, edge.seqLen
		progress := coordinator.Progress{Step: 1000, DataIndex: edge.data}
		code, err := r.genesis(coordinator.Genesis{RunID: "edge", Host: clientID(0), Config: config, Model: model, Progress: progress})
		if err == nil && code != 0 {
			err = fmt.Errorf("edge %+v: genesis %w", edge, code)
		}
		if err == nil {
			err = toFirstRound(r, g)
		}
		if err != nil {
			return err
		}
		if round := r.s.CurrentRound(); r.s.RunState != coordinator.RoundTrain || round.BatchSize != edge.want {
			return fmt.Errorf("edge %+v: %s", edge, r.s.String())
		}
	}
	for begun := r.operations; r.operations < begun+1500; {
		config := crowdConfig
		config.GlobalBatchSizeStart = uint32(g.Uint64()>>(32+g.IntN(32))) | 1
		config.GlobalBatchSizeEnd = max(config.GlobalBatchSizeStart, uint32(g.Uint64()>>(32+g.IntN(32))))
		config.GlobalBatchSizeWarmupTokens = g.Uint64() >> g.IntN(64)
		model := crowdModel
		model.Definition, model.MaxSeqLen = nil, uint32(g.Uint64()>>(32+g.IntN(32)))|1
		data := g.Uint64() >> (22 + g.IntN(42))
		if seqLen := uint64(model.MaxSeqLen); g.rarely(2) { // at the end of the warmup, or at half a sequence
			data = min(config.GlobalBatchSizeWarmupTokens/seqLen+uint64(g.IntN(2)), 1<<42)
		}
		genesis := coordinator.Genesis{RunID: "batch", Host: clientID(0), Config: config, Model: model, Progress: coordinator.Progress{Step: 1000, DataIndex: data}}
		code, err := r.genesis(genesis)
		if err != nil {
			return err
		}
		if code != 0 { // more data than the steps can use
			continue
		}
		if err := toFirstRound(r, g); err != nil {
			return err
		}
		if r.s.RunState != coordinator.RoundTrain {
			return fmt.Errorf("no round: %s", r.s.String())
		}
	}
	return nil
}

// toFirstRound plays a run that waits for two clients up to its first round.
func toFirstRound(r *pair, g *generator) error {
	for i, id := range g.ids[:2] {
		if _, err := r.apply(id, uint64(i)+1, encode(coordinator.Join{Epoch: r.s.Progress.Epoch})); err != nil {
			return err
		}
	}
	for range 4 {
		g.now += 31 * second
		if _, err := r.tick(g.now, g.Uint64()); err != nil {
			return err
		}
		if r.s.RunState == coordinator.RoundTrain {
			return nil
		}
	}
	return nil
}
