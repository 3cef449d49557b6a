package programtest

import (
	"bytes"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/psyche-go/psyche/core/coordinator"
)

// actionBytes returns an action of every kind, some with lists and texts of maximum length.
func actionBytes() map[string][]byte {
	ids := func(n int) []coordinator.ClientID {
		l := make([]coordinator.ClientID, n)
		for i := range l {
			l[i] = clientID(i)
		}
		return l
	}
	place := coordinator.Location{Kind: coordinator.CheckpointGcs, Repo: strings.Repeat("r", 96), Revision: strings.Repeat("v", 96)}
	m := map[string][]byte{}
	for name, a := range map[string]coordinator.Action{
		"join": coordinator.Join{}, "join that holds": coordinator.Join{Holds: clientID(1)}, "join that is named": coordinator.Join{Name: "Ada"},
		"join that holds and is named": coordinator.Join{Holds: clientID(1), Name: strings.Repeat("n", coordinator.MaxMemberName)}, "ready": coordinator.Ready{}, "return": coordinator.Return{},
		"equivocation": equivocationOf(clientID(0), 1, false, true),
		"witness":      coordinator.WitnessRound{Step: 1}, "no health check": coordinator.HealthCheck{}, "health check": coordinator.HealthCheck{Clients: ids(3)},
		"report": coordinator.ReportCheckpoint{}, "report with a claim": coordinator.ReportCheckpoint{HeldOut: 5}, "upload": coordinator.ReportUpload{Place: place}, "withdraw": coordinator.Withdraw{Client: clientID(0)},
		"pause": coordinator.SetPaused{Paused: true}, "update": coordinator.UpdateConfig{Config: crowdConfig, Model: coordinator.Model{
			MaxSeqLen: 16, Definition: []byte("def"), Checkpoint: coordinator.Checkpoint{Kind: coordinator.CheckpointHub, Repo: "repo", Revision: "v"}}},
		"authorize": coordinator.Authorize{Grantee: clientID(0), Allowed: true}, "delegates": coordinator.SetDelegates{Delegates: ids(4)},
		"admit": coordinator.Admit{Grant: clientID(5), Client: clientID(0), Allowed: true}, "no longer admit": coordinator.Admit{Grant: clientID(5), Client: clientID(0)},
		"eject": coordinator.Eject{Client: clientID(0)}, "close": coordinator.Close{},
		"offer": coordinator.Offer{Step: 1, Level: 80}, "accuse": coordinator.Accuse{Step: 1, Fault: 1}, "vote": coordinator.Vote{Step: 1, Guilty: true},
	} {
		m[name] = encode(a)
	}
	list := func(kind byte, n int) []byte { // of n IDs
		b := le.AppendUint16([]byte{kind, 0, 0, 0, 0}, uint16(n))
		return append(b, make([]byte, 32*n)...)
	}
	m["257 accused"], m["256 accused"], m["5 delegates"] = list(4, 257), list(4, 256), list(10, 5)
	m["report with an empty claim"] = append(encode(coordinator.ReportCheckpoint{}), 0, 0)
	m["report with half a claim"] = append(encode(coordinator.ReportCheckpoint{}), 1)
	m["report with more than a claim"] = append(encode(coordinator.ReportCheckpoint{HeldOut: 5}), 0)
	m["join that holds zeros"] = append(encode(coordinator.Join{}), make([]byte, 32)...)
	named := append(encode(coordinator.Join{}), make([]byte, 32)...)
	m["join with a long name"] = append(append(slices.Clone(named), coordinator.MaxMemberName+1), make([]byte, coordinator.MaxMemberName+1)...)
	m["join with an empty name"] = append(slices.Clone(named), 0)
	text := func(repo, revision int) []byte {
		b := append([]byte{13}, make([]byte, 36)...)
		b = append(append(b, 3, byte(repo)), strings.Repeat("r", repo)...)
		return append(append(b, byte(revision)), strings.Repeat("v", revision)...)
	}
	m["long repository"], m["longest repository"], m["long revision"], m["long names"] = text(193, 0), text(192, 0), text(1, 193), text(97, 96)
	m["nothing"], m["kind 0"], m["kind 14"], m["kind 255"] = nil, []byte{0}, []byte{14}, []byte{255}
	m["allowed 2"] = append(append([]byte{9}, make([]byte, 32)...), 2)
	m["shares by speed 2"], m["retry lost 2"] = option(m["update"], 2, 2), option(m["update"], 1, 2)
	m["paused 2"] = []byte{7, 2}
	m["two runs"], m["one result"] = slices.Clone(m["equivocation"]), slices.Clone(m["equivocation"])
	const first = 1 + 32 + 64 + 2 // a byte of the first announcement
	m["two runs"][first+24] ^= 1
	m["one result"][first+145+64+2+76] = 0
	m["kind 16"], m["kind 17"], m["kind 19"], m["kind 21"] = append([]byte{16}, make([]byte, 36)...), append([]byte{17}, make([]byte, 37)...), append([]byte{19}, make([]byte, 36)...), []byte{21}
	m["guilty 2"] = append(append([]byte{20}, make([]byte, 36)...), 2)
	return m
}

// option returns an UpdateConfig with another value in one of the last bytes before the model, which begins
// with the length of sequences: Config.SharesBySpeed is the byte before the last one, RetryLost the last one.
func option(update []byte, before int, value byte) []byte {
	model := le.AppendUint32(nil, 16)
	changed := slices.Clone(update)
	changed[bytes.LastIndex(update, model)-before] = value
	return changed
}

// alteredBytes sends every kind of action truncated at every byte, with an additional byte, and
// with single flipped bits, to a waiting run and to a paused run.
func alteredBytes(r *pair) error {
	g := newGenerator(7, 1)
	for _, paused := range []bool{false, true} {
		genesis := coordinator.Genesis{RunID: "bytes", Host: clientID(0), Config: crowdConfig, Model: crowdModel, Permissioned: true, Paused: paused}
		if _, err := r.genesis(genesis); err != nil {
			return err
		}
		var first error
		send := func(name string, body []byte) {
			if first != nil || slices.Equal(body, encode(coordinator.Close{})) { // a flip that would end the run
				return
			}
			g.nonce++
			if _, err := r.apply(clientID(0), g.nonce, body); err != nil {
				first = fmt.Errorf("%s of %d bytes: %w", name, len(body), err)
			}
		}
		actions := actionBytes()
		for _, name := range slices.Sorted(maps.Keys(actions)) {
			body := actions[name]
			for n := 0; n < len(body); n += 1 + n/40 {
				send(name, body[:n])
			}
			for _, extra := range []int{1, 31, 32} {
				send(name, append(slices.Clone(body), make([]byte, extra)...))
			}
			for range 12 {
				if len(body) > 0 {
					changed := slices.Clone(body)
					changed[g.IntN(min(len(body), 140))] ^= 1 << g.IntN(8)
					send(name, changed)
				}
			}
			send(name, body)
		}
		if first != nil {
			return first
		}
	}
	return nil
}
