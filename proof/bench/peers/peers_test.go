package main

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/psyche-go/psyche/files/checkpoint"
	"github.com/psyche-go/psyche/learn/model"
	"github.com/psyche-go/psyche/learn/torch"
	"github.com/psyche-go/psyche/learn/torch/torchtest"
)

func TestRowsAreReadAndChecked(t *testing.T) {
	r, err := readRows("rows.toml")
	if err != nil {
		t.Fatal(err)
	}
	if len(r.System) < 5 || len(r.Link) < 5 {
		t.Errorf("%d systems and %d links: are these all?", len(r.System), len(r.Link))
	}
	for _, text := range []string{
		"[[system]]\nname = \"x\"\nexchanges = 10\nmeasure = 1\n",
		"[[system]]\nname = \"x\"\ntorch = \"ddp\"\nbatch = 25\nexchanges = 10\nmeasure = 1\n",
		"[[system]]\nname = \"x\"\nstate = \"s\"\nexchanges = 10\n",
		"[[system]]\nname = \"x\"\nstate = \"s\"\nexchanges = 10\nmeasure = 1\nonly = \"link\"\n",
		"[[system]]\nname = \"x\"\ntorch = \"ddp\"\ntorchrun = true\nbatch = 24\nexchanges = 10\nmeasure = 1\n",
		"[[link]]\nname = \"x\"\nloss = 1000\n",
		"[[link]]\nname = \"x\"\nspeed = 1\n",
	} {
		path := filepath.Join(t.TempDir(), "rows.toml")
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		if _, err := readRows(path); err == nil {
			t.Errorf("%q was taken", text)
		}
	}
}

func curve(losses ...float64) measurement {
	m := measurement{Sequences: 24}
	for i, loss := range losses {
		m.Points = append(m.Points, point{Step: i * 10, Seconds: float64(i), HeldOut: loss})
	}
	return m
}

func TestExchangesToALoss(t *testing.T) {
	m := curve(5, 4, 3)
	for loss, want := range map[float64]float64{6: 0, 5: 0, 4.5: 5, 3.25: 17.5, 3: 20} {
		if got := exchangesTo(m, loss); math.Abs(got-want) > 1e-9 {
			t.Errorf("at %g after %g exchanges, want %g", loss, got, want)
		}
	}
	if got := exchangesTo(m, 2); !math.IsNaN(got) {
		t.Errorf("%g exchanges to a loss that is never reached, want NaN", got)
	}
}

func TestTheFirstOfATableIsFirstAtTheLoss(t *testing.T) {
	r := rows{System: []system{{Name: "slow", State: "s"}, {Name: "quick", Torch: "ddp"}}, Link: []link{{Name: "thin", Mbits: 1}}}
	slow, quick := curve(5, 4, 3), curve(5, 4, 3)
	for i := range slow.Points {
		slow.Points[i].Seconds *= 10
	}
	done := map[string]measurement{"curve-slow": curve(5, 4, 3), "curve-quick": curve(5, 4, 3), "link-thin-slow": slow, "link-thin-quick": quick}
	var b strings.Builder
	printTables(&b, r, done)
	_, table, _ := strings.Cut(b.String(), "**thin**")
	if a, z := strings.Index(table, "| quick"), strings.Index(table, "| slow"); a < 0 || z < a {
		t.Errorf("want quick before slow in:\n%s", b.String())
	}
	path := filepath.Join(t.TempDir(), "loss.svg")
	if err := writePicture(path, r, done); err != nil {
		t.Fatal(err)
	}
	file, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = file.Close() }()
	decoder := xml.NewDecoder(file)
	for {
		if _, err := decoder.Token(); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			t.Fatalf("the picture is not valid XML: %v", err)
		}
	}
}

func TestALossThatIsMeasuredLaterIsOfItsStep(t *testing.T) {
	lines := []line{{Time: 10}, {Time: 11, Step: 1, Loss: 5}, {Time: 12, Step: 2, Loss: 4}, {Time: 20, HeldOut: 6}, {Time: 21, Step: 2, HeldOut: 3}}
	want := []point{{HeldOut: 6}, {Step: 1, Seconds: 1, Loss: 5}, {Step: 2, Seconds: 2, Loss: 4, HeldOut: 3}}
	if got := pointsOf(lines); !slices.Equal(got, want) {
		t.Errorf("%+v, want %+v", got, want)
	}
}

func TestApart(t *testing.T) {
	dir := t.TempDir()
	for i, second := range []float32{3, 3, 4} {
		weights := binary.LittleEndian.AppendUint32(nil, math.Float32bits(4))
		weights = binary.LittleEndian.AppendUint32(weights, math.Float32bits(second))
		if err := os.WriteFile(filepath.Join(dir, fmt.Sprintf("rank-%d.f32", i)), weights, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if got, err := apart(dir); err != nil || math.Abs(got-0.2) > 1e-9 {
		t.Errorf("%g apart (%v), want 0.2", got, err)
	}
}

// TestPeersHaveOurLogits compares peers.py's Llama with ours, if PSYCHE_TEST_PYTHON names a Python
// that has torch and numpy.
func TestPeersHaveOurLogits(t *testing.T) {
	python := os.Getenv("PSYCHE_TEST_PYTHON")
	if _, err := versions(t.Context(), python, "torch", "numpy"); err != nil {
		t.Skipf("PSYCHE_TEST_PYTHON: %v", err)
	}
	e := torchtest.Engine(t)
	configuration, err := os.ReadFile("../../../configs/quickstart/model.json")
	if err != nil {
		t.Fatal(err)
	}
	tensors, err := model.Init(configuration, 1)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	snapshot := checkpoint.Snapshot{Files: []checkpoint.File{{Name: checkpoint.ConfigFile, Data: configuration}}, Tensors: tensors}
	if err := checkpoint.WriteDir(dir, snapshot); err != nil {
		t.Fatal(err)
	}
	const length = 64
	sequence := make([]int32, length+1)
	for i := range sequence {
		sequence[i] = int32(i * i % 256)
	}
	heldOut := filepath.Join(dir, heldOutFile)
	if err := writeTokens(heldOut, [][]int32{sequence}); err != nil {
		t.Fatal(err)
	}
	out, err := exec.CommandContext(t.Context(), python, "peers.py", "--logits", "--model", dir, "--held-out", heldOut, "--length", "64").Output()
	if err != nil {
		t.Fatal(err)
	}
	var theirs [][]float32
	if err := json.Unmarshal(out, &theirs); err != nil {
		t.Fatal(err)
	}
	m, err := model.New(t.Context(), e, configuration, model.Options{}, tensors)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = m.Close(context.WithoutCancel(t.Context())) }()
	torchtest.Do(t, e, false, func(s *torch.Scope) error {
		ours := m.Forward(s, s.FromInt32s(sequence[:length], 1, length)).Reshape(-1).Float32s()
		for i, row := range theirs {
			for j, want := range row {
				if got := ours[i*len(row)+j]; math.Abs(float64(got-want)) > 1e-4 {
					t.Fatalf("logit %d of token %d is %g, peers.py has %g", j, i, got, want)
				}
			}
		}
		if len(ours) != len(theirs)*len(theirs[0]) {
			t.Errorf("%d logits, peers.py has %d", len(ours), len(theirs)*len(theirs[0]))
		}
		return nil
	})
}
