package fuzztest

import (
	"bytes"
	"os"
	"os/exec"
	"reflect"
	"strings"
	"testing"
)

// fails is the environment variable that makes FuzzSelf fail in a process that TestFailuresAreFound
// starts. Its value names the property.
const fails = "FUZZTEST_FAILS"

// FuzzSelf has seeds with and without content.
func FuzzSelf(f *testing.F) {
	f.Add([]byte("a seed"), "text", uint8(3), int64(-1), true)
	f.Add([]byte{}, "", uint8(0), int64(0), false)
	inputs := 0
	how := os.Getenv(fails)
	Run(f, func(t *testing.T, b []byte, text string, small uint8, large int64, flag bool) {
		inputs++
		if string(b) == marker {
			t.Error("the marker is an input")
		}
		clear(b) // the property owns its input
		switch how {
		case "error":
			if small == 255 {
				t.Error("as wanted")
			}
		case "panic":
			if large < -1 && strings.HasPrefix(text, "te") {
				panic("as wanted")
			}
		case "skip":
			t.Skip("not of interest")
		}
	})
	if inputs < 3 && how == "" && os.Getenv("FUZZ_INPUTS") == "" && !isFuzzing() {
		f.Errorf("%d inputs", inputs)
	}
}

// TestFailuresAreFound runs properties that hold for the seeds and fail for some generated inputs.
func TestFailuresAreFound(t *testing.T) {
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	for how, want := range map[string]string{"error": "uint8(255)", "panic": `string("te`, "skip": ""} {
		command := exec.CommandContext(t.Context(), self, "-test.run", "^FuzzSelf$")
		command.Env = append(os.Environ(), fails+"="+how, "FUZZ_INPUTS=2000")
		out, err := command.CombinedOutput()
		if (err != nil) != (want != "") {
			t.Errorf("%s: %v\n%s", how, err, out)
		}
		if want != "" && (!bytes.Contains(out, []byte("f.Add([]byte(")) || !bytes.Contains(out, []byte(want))) {
			t.Errorf("%s: the failing input is not printed:\n%s", how, out)
		}
	}
}

// TestSameInputs checks that the inputs of a target are the same in every run, and that they
// contain values of all kinds.
func TestSameInputs(t *testing.T) {
	sequence := func() (all [][]reflect.Value) {
		g := testGenerator()
		for range 500 {
			all = append(all, g.next())
		}
		return all
	}
	first, second := sequence(), sequence()
	changed, kept := false, false
	for i := range first {
		if describe(first[i]) != describe(second[i]) {
			t.Fatalf("input %d is %s, and %s in the second run", i, describe(first[i]), describe(second[i]))
		}
		text := textOf(first[i][0])
		changed = changed || text != "seed" && strings.HasPrefix(text, "se")
		kept = kept || text == "seed"
	}
	if !changed || !kept {
		t.Errorf("a seed's text is mutated: %t, kept: %t", changed, kept)
	}
}

func testGenerator() *generator {
	property := func(*testing.T, []byte, string, bool, int8, int16, uint32, int, uint64, float32, float64) {}
	g := newGeneratorOf("a target", reflect.ValueOf(property))
	seed := make([]reflect.Value, len(g.types))
	for i, t := range g.types {
		seed[i] = reflect.New(t).Elem()
	}
	seed[0].SetBytes([]byte("seed"))
	g.seeds = append(g.seeds, seed)
	return g
}
