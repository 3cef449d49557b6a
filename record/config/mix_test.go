package config

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/psyche-go/psyche/base/fuzztest"
	"github.com/psyche-go/psyche/base/golden"
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
	for name, text := range map[string]string{
		"an array":              `[]`,
		"an empty object":       `{}`,
		"text after the object": `{"shuffle": "DontShuffle", "providers": []} x`,
		"no provider":           `{"shuffle": "DontShuffle", "providers": []}`,
		"a number":              `{"shuffle": "DontShuffle", "providers": [1]}`,
		"a pair without weight": `{"shuffle": "DontShuffle", "providers": [[` + mixLocation + `]]}`,
		"a string as weight":    `{"shuffle": "DontShuffle", "providers": [[` + mixLocation + `, "1"]]}`,
		"one weight of two":     `{"shuffle": "DontShuffle", "providers": [` + mixLocation + `, [` + mixLocation + `, 1]]}`,
		"an unknown key":        `{"shuffle": "DontShuffle", "weights": 1, "providers": [` + mixLocation + `]}`,
		"no braces":             `{"shuffle": "DontShuffle", "providers": [` + strings.Replace(mixLocation, "{}", "", 1) + `]}`,
		"no start index":        `{"shuffle": "DontShuffle", "providers": [` + strings.Replace(mixLocation, `"start_index": 0`, `"x": 0`, 1) + `]}`,
	} {
		_, err := ParseMix("mix.json", []byte(text))
		golden.Message(t, name, err)
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
