package e2e

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/psyche-go/psyche/record/event"
)

// smallModels are configurations of architectures other than Llama, which runs train as HfAuto: a
// model with only dense layers, a model with experts, and a model whose experts are stacked in
// tensors of three dimensions.
var smallModels = map[string]string{
	"Qwen3": `{
  "architectures": ["Qwen3ForCausalLM"], "model_type": "qwen3", "vocab_size": 256, "hidden_size": 32,
  "intermediate_size": 64, "num_hidden_layers": 2, "num_attention_heads": 2, "num_key_value_heads": 1,
  "head_dim": 16, "max_position_embeddings": 64, "rope_theta": 1000000.0, "tie_word_embeddings": true
}`,
	"Qwen3MoE": `{
  "architectures": ["Qwen3MoeForCausalLM"], "model_type": "qwen3_moe", "vocab_size": 256, "hidden_size": 32,
  "intermediate_size": 64, "moe_intermediate_size": 16, "num_experts": 6, "num_experts_per_tok": 2,
  "norm_topk_prob": true, "mlp_only_layers": [0], "num_hidden_layers": 2, "num_attention_heads": 2,
  "num_key_value_heads": 1, "head_dim": 16, "max_position_embeddings": 64
}`,
	"GptOss": `{
  "architectures": ["GptOssForCausalLM"], "model_type": "gpt_oss", "vocab_size": 256, "hidden_size": 32,
  "intermediate_size": 16, "num_local_experts": 6, "num_experts_per_tok": 2, "sliding_window": 8,
  "num_hidden_layers": 2, "num_attention_heads": 2, "num_key_value_heads": 1, "head_dim": 16,
  "max_position_embeddings": 64
}`,
}

// TestArchitectures trains models other than Llama, with audits, while one of three members is
// killed and returns. All members must end with the same model, audits must pass, and no member may
// be accused.
func TestArchitectures(t *testing.T) {
	t.Parallel()
	needClient(t)
	for name, config := range smallModels {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			const steps = 24
			n := newNetwork(t, rules{clients: 3, minClients: 2, roundsPerEpoch: steps / 2, steps: steps})
			n.change("verification_percent = 0", "verification_percent = 34")
			n.trains(config)
			n.startServer()
			clients := n.startClients(3)
			victim := clients[2]
			victim.waitPhase("RoundTrain", 8)
			victim.kill(t)
			victim.start()
			digest := finish(t, clients...)
			checkRun(t, n, clients...)
			passed, missed := honestAudits(t, clients, victim)
			if passed < steps/4 {
				t.Errorf("%d audits of %d rounds passed", passed, steps)
			}
			t.Logf("digest %s, %d audits passed, %d were not made", digest, passed, missed)
			if !countedAgain(t, victim) {
				t.Error("no result of the restarted member counted")
			}
		})
	}
}

// trains replaces the run's model by a new model of a configuration.
func (n *network) trains(config string) {
	n.t.Helper()
	n.change(`architecture = "HfLlama"`, `architecture = "HfAuto"`)
	if err := os.RemoveAll(n.model); err != nil {
		n.t.Fatal(err)
	}
	path := filepath.Join(n.dir, "own-config.json")
	writeFile(n.t, path, []byte(config))
	must(n.t, clientBinary, "init-model", "--config", path, "--seed", "1", "--output", n.model)
}

// honestAudits counts the audits that passed, and the audits by or of a killed member that could
// not be done. In a run of honest members there are no other audits, and no member is accused,
// voted on or ejected.
func honestAudits(t *testing.T, clients []*client, victim *client) (passed, missed int) {
	t.Helper()
	for _, c := range clients {
		for _, e := range c.events() {
			switch body := e.Body.(type) {
			case event.Audit:
				switch {
				case body.Outcome == "passed":
					passed++
				case body.Outcome != "faulty" && (c == victim || body.Trainer == victim.id):
					missed++
				default:
					t.Errorf("%s audited step %d: %s, %s", c.name, body.Step, body.Outcome, body.Detail)
				}
			case event.Accused, event.Voted, event.Ejected:
				t.Errorf("%s reports about an honest member: %+v", c.name, body)
			}
		}
	}
	return passed, missed
}

// countedAgain reports whether a result counted that the client made after its restart.
func countedAgain(t *testing.T, c *client) bool {
	t.Helper()
	lives := 0
	for _, e := range c.events() {
		switch body := e.Body.(type) {
		case event.Started:
			lives++
		case event.Applied:
			if lives > 1 && body.OwnCounted {
				return true
			}
		}
	}
	return false
}
