package fit_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/psyche-go/psyche/base/golden"
	"github.com/psyche-go/psyche/learn/memory"
	"github.com/psyche-go/psyche/learn/model"
	"github.com/psyche-go/psyche/record/config"
)

// The table of docs/gpu.md is between these lines.
const tableBegin, tableEnd = "<!-- memory -->\n", "<!-- end of memory -->\n"

// tableModels are the models of the table: the first two are the models of proof/bench/step.
var tableModels = []string{
	llama(32000, 768, 3072, 12, 12, 12),
	llama(32000, 2048, 5632, 22, 32, 4),
	llama(128256, 4096, 14336, 32, 32, 8),
	llama(128256, 8192, 28672, 44, 64, 8),
}

func llama(vocabulary, hidden, inner, layers, heads, groups int) string {
	return fmt.Sprintf(`{"architectures":["LlamaForCausalLM"],"model_type":"llama","vocab_size":%d,"hidden_size":%d,"intermediate_size":%d,
"num_hidden_layers":%d,"num_attention_heads":%d,"num_key_value_heads":%d,"max_position_embeddings":8192,"tie_word_embeddings":false}`,
		vocabulary, hidden, inner, layers, heads, groups)
}

// cards are GPUs by their nominal memory, with the memory that libtorch finds.
var cards = []struct {
	name string
	gib  float64
}{{"24 GB", 23.5}, {"80 GB", 79.1}, {"141 GB", 139.8}}

// TestTable checks the table of docs/gpu.md. The flag -update writes it.
func TestTable(t *testing.T) {
	path := filepath.Join("..", "..", "..", "docs", "gpu.md")
	page, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	before, rest, found := strings.Cut(string(page), tableBegin)
	table, after, ends := strings.Cut(rest, tableEnd)
	if !found || !ends {
		t.Fatalf("%s has no %q and %q", path, tableBegin, tableEnd)
	}
	want := memoryTable(t)
	if golden.Update() {
		if err := os.WriteFile(path, []byte(before+tableBegin+want+tableEnd+after), 0o644); err != nil {
			t.Fatal(err)
		}
	} else if table != want {
		t.Errorf("the table of %s is\n%s\nwant (go test -update writes it)\n%s", path, table, want)
	}
}

// memoryTable returns the table for micro batches of 4,096 tokens in bf16 with --recompute.
func memoryTable(t *testing.T) string {
	distro := config.Optimizer{Distro: &config.Distro{}}
	kinds := []struct {
		name      string
		optimizer config.Optimizer
		audited   bool
	}{
		{"DisTrO", distro, false},
		{"audited", distro, true},
		{"AdamW", config.Optimizer{LocalSteps: &config.LocalSteps{}}, false},
		{"Muon", config.Optimizer{LocalSteps: &config.LocalSteps{InnerOptimizer: config.Muon}}, false},
	}
	var out strings.Builder
	out.WriteString("| parameters |")
	for _, kind := range kinds {
		fmt.Fprintf(&out, " %s |", kind.name)
	}
	for _, card := range cards {
		fmt.Fprintf(&out, " %s |", card.name)
	}
	fmt.Fprintf(&out, "\n%s\n", strings.Repeat("|---", 1+len(kinds)+len(cards))+"|")
	for _, text := range tableModels {
		of, err := model.Describe([]byte(text))
		if err != nil {
			t.Fatal(err)
		}
		fmt.Fprintf(&out, "| %s |", count(of.NumParameters))
		fitting := make([][]string, len(cards))
		for _, kind := range kinds {
			gib := float64(memory.Training{
				Model: of.Memory(), Optimizer: kind.optimizer, Audited: kind.audited, Keep: memory.Kept,
				Batch: memory.Batch{Sequences: 2, Tokens: 2048, TwoBytes: true, Recompute: true, Devices: 1},
			}.Needs().Device) / (1 << 30)
			fmt.Fprintf(&out, " %.1f |", gib)
			for i, card := range cards {
				if gib <= card.gib {
					fitting[i] = append(fitting[i], kind.name)
				}
			}
		}
		for _, names := range fitting {
			fmt.Fprintf(&out, " %s |", list(names, len(kinds)))
		}
		out.WriteString("\n")
	}
	return out.String()
}

func count(parameters int64) string {
	if parameters < 1e9 {
		return fmt.Sprintf("%.0f M", float64(parameters)/1e6)
	}
	return fmt.Sprintf("%.1f B", float64(parameters)/1e9)
}

// list lists the trainings that fit, of all.
func list(names []string, all int) string {
	switch len(names) {
	case 0:
		return "–"
	case all:
		return "all"
	}
	return strings.Join(names, ", ")
}
