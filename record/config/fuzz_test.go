package config

import (
	"bytes"
	"os"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/psyche-go/psyche/base/fuzztest"
)

// FuzzParseState checks that ParseState never panics, and that accepted values survive the
// canonical encoding.
func FuzzParseState(f *testing.F) {
	for _, file := range samples(f) {
		text, err := os.ReadFile(file)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(text)
	}
	f.Add([]byte("model.LLM.data_locations = [[], {}, 1, {Http = {location = {}}}]"))
	f.Add([]byte("[[a]]\n[a.b]\n[[a.b.c]]\n[a.b.c.d]\ne = {f.g = [{h = 1}]}"))
	fuzztest.Run(f, func(t *testing.T, text []byte) {
		run, err := ParseState("s.toml", text)
		if err != nil {
			return
		}
		encoded, err := EncodeModel(run.Model)
		if err != nil {
			t.Fatal(err)
		}
		decoded, err := DecodeModel(encoded)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(run.Model, decoded); diff != "" {
			t.Fatal(diff)
		}
	})
}

func FuzzParseDataServer(f *testing.F) {
	f.Add([]byte("dir = \"d\"\ntoken_size = \"TwoBytes\"\nseq_len = 2048\nshuffle_seed = [1, 2]"))
	fuzztest.Run(f, func(t *testing.T, text []byte) {
		server, err := parseDataServer("d.toml", text)
		if err == nil && (len(server.Locations) == 0 || server.SeqLen == 0 || server.Locations[0].check() != nil && server.Locations[0].Local == nil) {
			t.Fatalf("accepted %+v", server)
		}
	})
}

// FuzzDecodeModel checks that a definition has only one encoding.
func FuzzDecodeModel(f *testing.F) {
	for _, file := range samples(f) {
		run, err := LoadState(file)
		if err != nil {
			f.Fatal(err)
		}
		encoded, err := EncodeModel(run.Model)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(encoded)
	}
	f.Add([]byte(`{"Architecture":"HfLlama","architecture":"HfLlama"}`))
	f.Add([]byte("null"))
	fuzztest.Run(f, func(t *testing.T, encoded []byte) {
		m, err := DecodeModel(encoded)
		if err != nil {
			return
		}
		again, err := EncodeModel(m)
		if err != nil || !bytes.Equal(again, encoded) {
			t.Fatalf("%v: %q encodes as %q", err, encoded, again)
		}
	})
}
