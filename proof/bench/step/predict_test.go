package main

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/psyche-go/psyche/base/golden"
	"github.com/psyche-go/psyche/learn/model"
)

// The table of predictions in README.md is between these lines.
const predictedBegin, predictedEnd = "<!-- predicted -->\n", "<!-- end of predicted -->\n"

// The work of a round of DisTrO on a device. TestLaunches and TestStrictRoundStaysOnTheDevice count it on
// an emulated device, and limit it to these numbers.
const (
	launchesOfLayer = 40
	launchesOfEnds  = 20 // embedding, head and loss
	launchesOfRound = 5  // norm, two for the floors, encode and apply
	entryBytes      = 8  // of a coefficient of a result
	moveBytes       = 64 << 10
	moves           = 4      // of results: one is read back, three are applied
	memoryBytes     = 13 + 8 // for each parameter: reads of gradients, momenta and weights, and writes of momenta and weights
)

// Times on the machine with the H200. The encode kernel was timed alone.
const (
	launchSeconds = 17e-6        // 1,850 launches of a step took 31.8 ms
	linkSeconds   = 0.35e-9      // for each byte, from memory that is not pinned
	encodeSeconds = 3e-3 / 162e6 // for each parameter; estimated from the registers of the kernel, which arithmetic limits
	codecSeconds  = 1e-3 / 162e6 // for each parameter, to write and read results on 16 processors
	useful        = 0.5          // part of the peak of matrix products that passes reach
)

// predictedCards have bytes per second of memory, and operations per second in bf16.
var predictedCards = []struct {
	name               string
	memory, operations float64
}{{"H200", 4.3e12, 790e12}, {"RTX 4090", 0.9 * 1.008e12, 165e12}}

// TestPredictions checks the table of predicted round times in README.md. The flag -update writes it.
func TestPredictions(t *testing.T) {
	page, err := os.ReadFile("README.md")
	if err != nil {
		t.Fatal(err)
	}
	before, rest, found := strings.Cut(string(page), predictedBegin)
	table, after, ends := strings.Cut(rest, predictedEnd)
	if !found || !ends {
		t.Fatalf("README.md has no %q and %q", predictedBegin, predictedEnd)
	}
	want := predictions(t)
	if golden.Update() {
		if err := os.WriteFile("README.md", []byte(before+predictedBegin+want+predictedEnd+after), 0o644); err != nil {
			t.Fatal(err)
		}
	} else if table != want {
		t.Errorf("the table of README.md is\n%s\nwant (go test -update writes it)\n%s", table, want)
	}
}

func predictions(t *testing.T) string {
	t.Helper()
	var out strings.Builder
	out.WriteString("| milliseconds, predicted | passes | encode | apply | copies and codec | round | round, measured before |\n|---|---|---|---|---|---|---|\n")
	for _, of := range []struct {
		name, file string
		layers     float64
		measured   float64 // on the H200, with the optimizer on the CPU
	}{{"162 M parameters", "model-160m.json", 12, 0.257 + 0.264 + 0.118}, {"1.1 B parameters", "model-1b.json", 22, 1.723 + 1.642 + 0.918}} {
		text, err := os.ReadFile(of.file)
		if err != nil {
			t.Fatal(err)
		}
		described, err := model.Describe(text)
		if err != nil {
			t.Fatal(err)
		}
		const sequences, tokens, chunk, topK = 2, 2048, 64 * 64, 8
		perToken, err := stepFLOPs(of.file, tokens)
		if err != nil {
			t.Fatal(err)
		}
		n := float64(described.NumParameters)
		for _, card := range predictedCards {
			passes := max(launchSeconds*(launchesOfLayer*of.layers+launchesOfEnds), perToken*sequences*tokens/(useful*card.operations))
			stream := n * memoryBytes / card.memory / 2 // encode and apply move about half each
			encode := max(stream, encodeSeconds*n) + launchSeconds*(launchesOfRound-1)
			apply := stream + launchSeconds
			copies := moves*(entryBytes*topK*n/chunk+moveBytes)*linkSeconds + codecSeconds*n
			measured := "–"
			if card.name == "H200" {
				measured = fmt.Sprintf("%.0f", 1e3*of.measured)
			}
			fmt.Fprintf(&out, "| %s, %s | %.1f | %.1f | %.1f | %.1f | %.0f | %s |\n", of.name, card.name,
				1e3*passes, 1e3*encode, 1e3*apply, 1e3*copies, 1e3*(passes+encode+apply+copies), measured)
		}
	}
	return out.String()
}
