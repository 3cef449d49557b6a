package main

import (
	"encoding/json"
	"fmt"
	"strconv"
	"strings"

	"github.com/psyche-go/psyche/files/data/local"
	"github.com/psyche-go/psyche/learn/train"
)

// setting is a flag that affects the result of a training. It is saved with the training.
type setting struct {
	flag, value string
	// fixed is the reason why a training cannot continue with a different value; empty: it can.
	fixed string
}

const countsSequences = "the resumed training would read the wrong sequences"

// settings returns the settings of a training on the data. They exclude paths, because the same
// data may be moved.
func (c *soloCommand) settings(data *local.Folder, warmup uint32) []setting {
	number := func(value float64) string { return strconv.FormatFloat(value, 'g', -1, 64) }
	fingerprint := data.Fingerprint()
	all := []setting{
		{"--data-path", fmt.Sprintf("%d tokens of %d bytes, %x", data.Tokens(), data.TokenSize(), fingerprint[:8]), countsSequences},
		{"--seq-len", strconv.Itoa(c.SeqLen), countsSequences},
		{"--shuffle", strconv.FormatUint(c.Shuffle, 10), countsSequences},
		{"--total-batch", strconv.Itoa(c.TotalBatch), ""},
		{"--steps", strconv.FormatUint(uint64(c.Steps), 10), ""},
		{"--lr", number(c.LR), ""},
		{"--lr-schedule", c.LRSchedule, ""},
		{warmupFlag, strconv.FormatUint(uint64(warmup), 10), ""},
		{"--weight-decay", number(c.WeightDecay), ""},
		{"--clip-grad-norm", number(c.ClipGradNorm), ""},
	}
	if c.LRSchedule == wsd {
		decay := c.stableDecay(warmup, c.Steps)
		all = append(all,
			setting{"--cosine-decay-steps", strconv.FormatUint(uint64(decay.CosineDecaySteps), 10), ""},
			setting{"--cosine-decay-final-lr", number(decay.CosineDecayFinalLR), ""},
			setting{"--linear-decay-steps", strconv.FormatUint(uint64(decay.LinearDecaySteps), 10), ""})
	}
	if c.LRSchedule != "constant" {
		all = append(all, setting{"--final-lr", number(c.FinalLR), ""})
	}
	if c.Optimizer == "adamw" {
		return append(all, setting{"--beta-1", number(c.Beta1), ""}, setting{"--beta-2", number(c.Beta2), ""}, setting{"--eps", number(c.Eps), ""})
	}
	return append(all,
		setting{"--compression-decay", number(c.CompressionDecay), ""},
		setting{"--compression-topk", strconv.Itoa(int(c.CompressionTopK)), ""},
		setting{"--compression-chunk", strconv.Itoa(int(c.CompressionChunk)), ""},
		setting{"--quantize-1bit", strconv.FormatBool(c.Quantize1Bit), ""})
}

const warmupFlag = "--warmup-steps"

// encodeSettings encodes the settings as an object of flags and values.
func encodeSettings(all []setting) (string, error) {
	values := make(map[string]string, len(all))
	for _, s := range all {
		values[s.flag] = s.value
	}
	text, err := json.Marshal(values)
	if err != nil {
		return "", fmt.Errorf("encode settings: %w", err)
	}
	return string(text), nil
}

// savedSettings decodes the output of encodeSettings. It returns nil if none were saved.
func savedSettings(state *train.OptimizerState) (map[string]string, error) {
	if state == nil || state.Settings == "" {
		return nil, nil
	}
	var values map[string]string
	if err := json.Unmarshal([]byte(state.Settings), &values); err != nil {
		return nil, fmt.Errorf("settings in %s: %w", train.OptimizerFile, err)
	}
	return values, nil
}

// savedWarmup returns the number of warmup steps at the start of a training.
func savedWarmup(saved map[string]string) uint32 {
	steps, err := strconv.ParseUint(saved[warmupFlag], 10, 32)
	if err != nil {
		return defaultWarmup
	}
	return uint32(steps)
}

// compareSettings returns an error if the settings do not permit continuing the training in save.
// Otherwise it returns a description of the changed settings.
func compareSettings(save string, saved map[string]string, all []setting) (changed string, err error) {
	var changes []string
	for _, s := range all {
		before, known := saved[s.flag]
		switch {
		case !known || before == s.value:
		case s.fixed != "":
			return "", fmt.Errorf("%s is %s, but the training in --save %s started with %s: %s; use the same value, or start a new training from that model with --model %s and another --save",
				s.flag, s.value, save, before, s.fixed, save)
		default:
			changes = append(changes, fmt.Sprintf("%s is %s, was %s", s.flag, s.value, before))
		}
	}
	return strings.Join(changes, "; "), nil
}
