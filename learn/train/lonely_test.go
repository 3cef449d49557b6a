package train

import (
	"math"
	"testing"
)

// TestALoneSpeakerHasALoneVote checks that one of eight members cannot dominate the embeddings of
// tokens that occur in no member's text. The member adds a pattern to the momentum of these
// embeddings in every step. No other member contradicts it, so the signs follow its pattern; but
// its chunks move by only an eighth of the rate.
func TestALoneSpeakerHasALoneVote(t *testing.T) {
	const members, steps, tokens = 8, 40, 32 // tokens 0 to 31: control characters
	var trainers []*Trainer
	for i := range members {
		trainers = append(trainers, newTestTrainer(t, func(o *Options) {
			o.Model = snapshotOf(t, splitConfig)
			o.Optimizer.Distro.ApplyLag, o.Optimizer.Distro.WeightDecay = 1, 0
			o.TrainerID = [32]byte{byte(i + 1)}
		}))
	}
	attacker, honest := trainers[0], trainers[1]
	snapshot, err := honest.Snapshot(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	tensor := -1
	for i, n := range snapshot.Tensors {
		if n.Name == "model.embed_tokens.weight" {
			tensor = i
		}
	}
	rare := func(o *Trainer) []float32 { return o.weights()[tensor][:tokens*32] }
	pattern := func(i int) float64 { return []float64{1, -1}[(i*7+i/16*5)%2] }
	before := append([]float32(nil), rare(honest)...)
	reach := 0.0
	for step := uint32(1); step <= steps; step++ {
		reach += float64(honest.rates.lr(step))
		var payloads [][]byte
		for i, o := range trainers {
			if o == attacker {
				for j := range rare(o) {
					momentumOf(o.distro().optimizer)[tensor][j] += float32(1e-4 * pattern(j))
				}
			}
			first := uint64(step)*32 + 4*uint64(i)
			payload, _, err := o.Train(t.Context(), step, toyBatch(first, first+4), nil)
			if err != nil {
				t.Fatal(err)
			}
			payloads = append(payloads, payload)
		}
		for _, o := range trainers {
			if err := o.Apply(t.Context(), step, payloads, nil, true); err != nil {
				t.Fatal(err)
			}
		}
	}
	wanted, far, moved := 0, 0, 0.0
	for i, w := range rare(honest) {
		by := -float64(w-before[i]) * pattern(i)
		moved += by / float64(len(before))
		if by > 0 {
			wanted++
		}
		if by > reach/4 {
			far++
		}
	}
	t.Logf("%d of %d weights moved as the attacker wants, by %.3f of the way on average, %d by more than a quarter of it",
		wanted, len(before), moved/reach, far)
	if far > 0 || moved > reach/members*1.001 || math.IsNaN(moved) {
		t.Errorf("weights moved by %.3f of the full rate, want at most %.3f", moved/reach, 1.0/members)
	}
	if wanted < len(before)/2 {
		t.Errorf("only %d of %d weights moved: the attack is not what it should be", wanted, len(before))
	}
}
