package hubset

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/psyche-go/psyche/base/fuzztest"
	"github.com/psyche-go/psyche/base/golden"
	"github.com/psyche-go/psyche/files/data/prepare"
	"github.com/psyche-go/psyche/files/hub"
	"github.com/psyche-go/psyche/files/hub/hubtest"
)

// TestChooseAgreesWithDatasets compares with the files that Python's datasets selects
// (testdata/choose.py).
func TestChooseAgreesWithDatasets(t *testing.T) {
	raw, err := os.ReadFile(filepath.Join("testdata", "choose.json"))
	if err != nil {
		t.Fatal(err)
	}
	var cases []struct {
		Files  []string
		Splits map[string][]string
	}
	if err := json.Unmarshal(raw, &cases); err != nil {
		t.Fatal(err)
	}
	for _, c := range cases {
		for _, split := range []string{"train", "validation", "test"} {
			got, err := choose(c.Files, split, prepare.HoldsRows)
			if want := c.Splits[split]; !cmp.Equal(got, want) || (err != nil) != (want == nil) {
				t.Errorf("%s of %q: %q, %v, want %q", split, c.Files, got, err, want)
			}
		}
	}
}

func TestChooseNamesWhatThereIs(t *testing.T) {
	for name, files := range map[string][]string{
		"other splits": {"test.csv", "odd-00000-of-00001.parquet"},
		"other files":  {"README.md", ".data/train.csv"},
		"two folders":  {"large/train.csv", "small/train.csv"},
	} {
		_, err := choose(files, "train", prepare.HoldsRows)
		golden.Message(t, name, err)
	}
}

func TestParse(t *testing.T) {
	for text, want := range map[string]Address{
		"hf://datasets/a/b":    {Repo: "a/b"},
		"hf://datasets/a/b@v1": {Repo: "a/b", Revision: "v1"},
		"hf://datasets/a/b@refs%2Fconvert%2Fparquet/x/*.csv": {Repo: "a/b", Revision: "refs/convert/parquet", Pattern: "x/*.csv"},
		"hf://datasets/a/b/data/":                            {Repo: "a/b", Pattern: "data"},
		"hf://datasets/a":                                    {}, "hf://datasets/a/b@": {}, "hf://datasets//b": {}, "hf://datasets/a/b/[": {}, "hf://a/b": {}, "hf://datasets/../b": {},
	} {
		got, err := Parse(text)
		if got != want || (err != nil) != (want == Address{}) {
			t.Errorf("%s: got %+v, %v; want %+v and (err != nil) == (want == Address{})", text, got, err, want)
		}
	}
}

// TestDownload downloads files into the cache, and finds them there without the Hub.
func TestDownload(t *testing.T) {
	server := hubtest.New()
	defer server.Close()
	server.Put("org/set", map[string][]byte{"data/train-1.jsonl": []byte("1"), "data/train-10.jsonl": []byte("10"), "data/train-2.jsonl": []byte("2"), "data/test.jsonl": []byte("t"), "x.txt": []byte("x")})
	o := hub.Options{Endpoint: server.URL, CacheDir: t.TempDir(), Datasets: true}
	for _, test := range []struct{ address, split, want string }{
		{"hf://datasets/org/set", "train", "data/train-1.jsonl data/train-2.jsonl data/train-10.jsonl"},
		{"hf://datasets/org/set", "test", "data/test.jsonl"},
		{"hf://datasets/org/set@main/data", "", "data/test.jsonl data/train-1.jsonl data/train-2.jsonl data/train-10.jsonl"},
		{"hf://datasets/org/set/*.txt", "", "x.txt"},
	} {
		for _, o.Offline = range []bool{false, true} {
			client, err := hub.New(o)
			if err != nil {
				t.Fatal(err)
			}
			address, err := Parse(test.address)
			if err != nil {
				t.Fatal(err)
			}
			files, commit, err := Download(t.Context(), client, address, test.split, prepare.HoldsRows)
			if err != nil {
				t.Errorf("%s: %v", test.address, err)
				continue
			}
			root := filepath.Join(o.CacheDir, "datasets--org--set", "snapshots", commit) + string(filepath.Separator)
			for i := range files {
				if _, err := os.Stat(files[i]); err != nil {
					t.Error(err)
				}
				files[i] = strings.TrimPrefix(files[i], root)
			}
			if got := strings.Join(files, " "); got != test.want {
				t.Errorf("%s: %s, want %s", test.address, got, test.want)
			}
		}
	}
	if requests := strings.Join(server.Requests(), " "); strings.Count(requests, "train-10.jsonl") != 1 {
		t.Errorf("a file was not requested exactly once: %s", requests)
	}
}

func FuzzParse(f *testing.F) {
	f.Add("hf://datasets/a/b@main/x/*.csv")
	fuzztest.Run(f, func(_ *testing.T, text string) { _, _ = Parse(text) })
}
