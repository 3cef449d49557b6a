package config

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/psyche-go/psyche/base/fuzztest"
)

const mixLocation = `{"location": {"NumberedFiles": {"url_template": "http://localhost:8000/{}.ds",
	"start_index": 0, "n_left_pad_zeros": 3, "num_files": 2}}, "token_size_in_bytes": "TwoBytes", "shuffle": "DontShuffle"}`

func TestParseMix(t *testing.T) {
	first := HTTPData{TokenSize: TwoBytes, Location: HTTPLocation{
		NumberedFiles: &NumberedFiles{URLTemplate: "http://localhost:8000/{}.ds", NLeftPadZeros: 3, NumFiles: 2},
	}}
	second := HTTPData{TokenSize: FourBytes, Location: HTTPLocation{URLs: []string{"http://a/b", "https://c/d"}}}
	other := `{"location": {"Urls": ["http://a/b", "https://c/d"]}, "token_size_in_bytes": "FourBytes", "shuffle": "DontShuffle"}`
	for text, want := range map[string]Mix{
		`{"shuffle": "DontShuffle", "providers": [[` + mixLocation + `, 0.7], [` + other + `, 3]]}`: {
			Sources: []HTTPData{first, second}, Weights: []string{"0.7", "3"},
		},
		`{"shuffle": {"Seeded": [` + strings.Repeat("7,", 31) + `7]}, "providers": [` + mixLocation + `]}`: {
			Sources: []HTTPData{first}, Shuffle: Shuffle{Seed: new([32]byte)},
		},
	} {
		if want.Shuffle.Seed != nil {
			for i := range want.Shuffle.Seed {
				want.Shuffle.Seed[i] = 7
			}
		}
		got, err := ParseMix("mix.json", []byte(text))
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("(-want +got):\n%s", diff)
		}
	}
}

func TestParseMixNamesWhatIsWrong(t *testing.T) {
	for text, want := range map[string]string{
		`[]`: "mix.json: not a JSON object",
		`{}`: `missing key "providers"`,
		`{"shuffle": "DontShuffle", "providers": []} x`:                                                                    "something follows",
		`{"shuffle": "DontShuffle", "providers": []}`:                                                                      "want an array of 1 to 256 locations",
		`{"shuffle": "DontShuffle", "providers": [1]}`:                                                                     "want a table",
		`{"shuffle": "DontShuffle", "providers": [[` + mixLocation + `]]}`:                                                 "a pair of a location and its weight",
		`{"shuffle": "DontShuffle", "providers": [[` + mixLocation + `, "1"]]}`:                                            "a pair of a location and its weight",
		`{"shuffle": "DontShuffle", "providers": [` + mixLocation + `, [` + mixLocation + `, 1]]}`:                         "either all",
		`{"shuffle": "DontShuffle", "weights": 1, "providers": [` + mixLocation + `]}`:                                     `unknown key "weights"`,
		`{"shuffle": "DontShuffle", "providers": [` + strings.Replace(mixLocation, "{}", "", 1) + `]}`:                     "exactly one {}",
		`{"shuffle": "DontShuffle", "providers": [` + strings.Replace(mixLocation, `"start_index": 0`, `"x": 0`, 1) + `]}`: "start_index",
	} {
		if _, err := ParseMix("mix.json", []byte(text)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s:\ngot %v\nwant %q", text, err, want)
		}
	}
}

func FuzzParseMix(f *testing.F) {
	f.Add([]byte(`{"shuffle": "DontShuffle", "providers": [[` + mixLocation + `, 0.7]]}`))
	fuzztest.Run(f, func(t *testing.T, text []byte) {
		mix, err := ParseMix("mix.json", text)
		if err == nil && (len(mix.Sources) == 0 || mix.Weights != nil && len(mix.Weights) != len(mix.Sources)) {
			t.Fatalf("accepted %+v", mix)
		}
	})
}
