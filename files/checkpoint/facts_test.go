package checkpoint

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/psyche-go/psyche/base/fuzztest"
)

var facts = Facts{RunID: "my run", Epoch: 3, Step: 120, DataIndex: 9600, MaxSeqLen: 2048, Digest: strings.Repeat("ab", 32)}

// TestFactsAreBesideTheCheckpoint checks that facts are found, and that they change neither the
// checkpoint nor its digest.
func TestFactsAreBesideTheCheckpoint(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "model")
	if _, err := ReadFacts(dir); !errors.Is(err, ErrNoFacts) {
		t.Errorf("error = %v, want ErrNoFacts", err)
	}
	for range 2 {
		if err := WriteDir(dir, sample(120), facts.Extra()); err != nil {
			t.Fatal(err)
		}
	}
	got, err := ReadFacts(dir)
	if err != nil || got != facts {
		t.Errorf("facts %+v, %v", got, err)
	}
	s, err := ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(sample(120), s); diff != "" {
		t.Error(diff)
	}
}

func TestParseFactsRejects(t *testing.T) {
	for _, text := range []string{"", "[]", "{}", `{"run_id":"a","digest":"ab"}`, `{"run_id":"a","step":-1}`, `{"run_id":"a","step":4294967296}`, strings.Repeat(" ", maxFactsSize+1)} {
		if _, err := ParseFacts([]byte(text)); !errors.Is(err, ErrInvalid) {
			t.Errorf("%.20q: error = %v, want ErrInvalid", text, err)
		}
	}
}

func FuzzParseFacts(f *testing.F) {
	f.Add(facts.Encode())
	f.Add([]byte(`{"run_id":"a","digest":"` + strings.Repeat("0", 64) + `","step":-1}`))
	f.Add([]byte(`null`))
	fuzztest.Run(f, func(t *testing.T, text []byte) {
		got, err := ParseFacts(text)
		if err != nil {
			if !errors.Is(err, ErrInvalid) {
				t.Fatalf("error %v is not ErrInvalid", err)
			}
			return
		}
		if again, err := ParseFacts(got.Encode()); err != nil || again != got {
			t.Fatalf("%+v is read as %+v, %v", got, again, err)
		}
	})
}

// FuzzReadDir reads folders with a foreign index and config.json next to a valid shard.
func FuzzReadDir(f *testing.F) {
	const shard = "model-00001-of-00001.safetensors"
	whole := f.TempDir()
	if err := WriteDir(filepath.Join(whole, "m"), sample(7)); err != nil {
		f.Fatal(err)
	}
	weights, err := os.ReadFile(filepath.Join(whole, "m", singleFile))
	if err != nil {
		f.Fatal(err)
	}
	config, _ := sample(7).File(ConfigFile)
	var names []string
	for _, tensor := range sample(7).Tensors {
		names = append(names, `"`+tensor.Name+`":"`+shard+`"`)
	}
	f.Add([]byte(`{"weight_map":{`+strings.Join(names, ",")+`}}`), config)
	f.Add([]byte(`{"weight_map":{"a":"../../`+shard+`"}}`), []byte(`{"architectures":[]}`))
	fuzztest.Run(f, func(t *testing.T, index, config []byte) {
		dir := t.TempDir()
		for name, data := range map[string][]byte{shard: weights, indexFile: index, ConfigFile: config} {
			if err := os.WriteFile(filepath.Join(dir, name), data, 0o600); err != nil {
				t.Fatal(err)
			}
		}
		got, err := ReadDir(dir)
		if err != nil {
			if !errors.Is(err, ErrInvalid) {
				t.Fatalf("error %v is not ErrInvalid", err)
			}
			return
		}
		if err := got.Validate(); err != nil || len(got.Tensors) != len(names) {
			t.Fatalf("%d tensors, %v", len(got.Tensors), err)
		}
		if digest, err := DigestDir(t.Context(), dir, nil); err != nil || digest != got.Manifest().Digest() {
			t.Fatalf("digest %x, %v, differs from the digest of the snapshot", digest, err)
		}
	})
}
