package main

import (
	"fmt"
	"slices"
	"strings"

	"github.com/psyche-go/psyche/proof/matrix/cover"
)

// features are the features of rows, each with its levels.
var features = []cover.Feature{
	{Name: "backend", Levels: []string{"server", "chain"}},
	{Name: "data", Levels: []string{"local", "http", "bucket", "server"}},
	{Name: "checkpoint", Levels: []string{"local", "hub", "bucket", "p2p"}}, // with the dummy model, local means the dummy model's own checkpoint
	{Name: "results", Levels: []string{"signs", "values", "dummy", "local", "muon"}},
	{Name: "lag", Levels: []string{"1", "2"}},
	{Name: "audits", Levels: []string{"0", "30", "50"}},
	{Name: "clip", Levels: []string{"on", "off"}},
	{Name: "shares", Levels: []string{"equal", "speeds"}},
	{Name: "returns", Levels: []string{"off", "on"}}, // of lost sequences
	{Name: "witnesses", Levels: []string{"all", "few"}},
	{Name: "admission", Levels: []string{"open", "keys", "delegates"}},
	{Name: "epochs", Levels: []string{"rounds", "time"}},
	{Name: "rounds", Levels: []string{"short", "long"}},
	{Name: "uploads", Levels: []string{"none", "hub", "bucket"}},
	{Name: "evaluations", Levels: []string{"off", "on"}},
	{Name: "trackers", Levels: []string{"none", "files", "otlp"}},
	{Name: "parallelism", Levels: []string{"none", "data", "tensor"}},
	{Name: "device", Levels: []string{"cpu", "strict"}},         // of two members, one of them with two devices; their memory faults outside kernels and copies
	{Name: "kills", Levels: []string{"none", "client", "host"}}, // a chain in memory is stopped for a while instead of being killed
	{Name: "stop", Levels: []string{"no", "resume"}},
	{Name: "late", Levels: []string{"no", "joins"}},
	{Name: "leaver", Levels: []string{"no", "leaves"}},
	{Name: "slow", Levels: []string{"no", "stopped"}},
	{Name: "starved", Levels: []string{"no", "busy"}},
	{Name: "link", Levels: []string{"fast", "fair", "FIFO"}}, // of one member: 1 Mbit/s, with fair queues or with a FIFO queue of one second
	{Name: "slanderer", Levels: []string{"no", "accuses"}},   // an additional member, which accuses the member with the slow link of silence
}

// refusal is a combination that the programs refuse, with words of the message.
type refusal struct {
	levels map[string]string
	words  string
}

var refusals = []refusal{
	{map[string]string{"results": "dummy", "checkpoint": "hub"}, "the Dummy optimizer does not train the model of a checkpoint"},
	{map[string]string{"results": "dummy", "checkpoint": "bucket"}, "the Dummy optimizer does not train the model of a checkpoint"},
	{map[string]string{"results": "dummy", "checkpoint": "p2p"}, "the Dummy optimizer does not train the model of a checkpoint"},
	{map[string]string{"results": "signs", "audits": "30", "clip": "off"}, "set clip_grad_norm"},
	{map[string]string{"results": "signs", "audits": "50", "clip": "off"}, "set clip_grad_norm"},
	{map[string]string{"results": "values", "audits": "30", "clip": "off"}, "set clip_grad_norm"},
	{map[string]string{"results": "values", "audits": "50", "clip": "off"}, "set clip_grad_norm"},
	{map[string]string{"results": "dummy", "audits": "30", "clip": "off"}, "set clip_grad_norm"},
	{map[string]string{"results": "dummy", "audits": "50", "clip": "off"}, "set clip_grad_norm"},
}

// row is one run: a level of each feature.
type row struct {
	number  int // from 1
	levels  map[string]string
	refused string // words of the required refusal; empty: it runs
	brief   bool   // half of the rounds
}

// rowsOf returns the rows of a seed.
func rowsOf(seed uint64) ([]row, error) {
	plan := cover.Plan{Features: features}
	for _, r := range refusals {
		var combination cover.Combination
		for i, f := range features {
			if level, ok := r.levels[f.Name]; ok {
				combination = append(combination, cover.Choice{Feature: i, Level: slices.Index(f.Levels, level)})
			}
		}
		plan.Forbidden = append(plan.Forbidden, combination)
	}
	made, err := plan.Rows(seed)
	if err != nil {
		return nil, err
	}
	rows := make([]row, len(made))
	for i, m := range made {
		rows[i] = row{number: i + 1, levels: map[string]string{}}
		for feature, level := range m.Levels {
			rows[i].levels[features[feature].Name] = features[feature].Levels[level]
		}
		if m.Forbidden >= 0 {
			rows[i].refused = refusals[m.Forbidden].words
		}
	}
	return rows, nil
}

// parseRow parses a row such as "backend=chain,lag=2". Features without a value have their first
// level.
func parseRow(text string) (row, error) {
	r := row{levels: map[string]string{}}
	for _, f := range features {
		r.levels[f.Name] = f.Levels[0]
	}
	for part := range strings.SplitSeq(text, ",") {
		name, level, _ := strings.Cut(part, "=")
		i := slices.IndexFunc(features, func(f cover.Feature) bool { return f.Name == name })
		if i < 0 {
			return r, fmt.Errorf("-row: no feature is called %q; want feature=level, with commas between", name)
		}
		if !slices.Contains(features[i].Levels, level) {
			return r, fmt.Errorf("-row: %s is %q, want one of %s", name, level, strings.Join(features[i].Levels, ", "))
		}
		r.levels[name] = level
	}
	for _, refusal := range refusals {
		holds := true
		for name, level := range refusal.levels {
			holds = holds && r.levels[name] == level
		}
		if holds {
			r.refused = refusal.words
		}
	}
	return r, nil
}

// has reports whether the row has a level.
func (r row) has(feature, level string) bool { return r.levels[feature] == level }

// String lists the levels that are not the first of their feature.
func (r row) String() string {
	var others []string
	for _, f := range features {
		if level := r.levels[f.Name]; level != f.Levels[0] {
			others = append(others, f.Name+"="+level)
		}
	}
	if len(others) == 0 {
		return features[0].Name + "=" + features[0].Levels[0]
	}
	return strings.Join(others, ",")
}
