package preprocessed

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// TestNulls checks that a null column and a null list count as absent, and that row groups without
// rows change nothing. pyarrow wrote the files, see testdata/nulls.py.
func TestNulls(t *testing.T) {
	plain := []Sample{{Tokens: []int32{1, 2, 3}}, {Tokens: []int32{4, 5}}}
	for name, want := range map[string][]Sample{
		"null-columns": plain, "null-lists": plain, "lists-of-null": plain, "labels-of-null": {{Tokens: []int32{1, 2}}},
		"some-labels":  {{Tokens: []int32{1, 2, 3}, Positions: []int32{0, 1, 2}}, {Tokens: []int32{4, 5}, Labels: []int32{IgnoreLabel, 5}}},
		"empty-groups": {{Tokens: []int32{1, 2, 3}}, {Tokens: []int32{4, 5}}, {Tokens: []int32{7, 8}}},
	} {
		d := open(t, filepath.Join("testdata", "nulls", name+".parquet"), Options{SeqLen: 4})
		var indices []uint64
		for i := range d.Len() {
			indices = append(indices, i)
		}
		got, err := d.Read(t.Context(), indices)
		if diff := cmp.Diff(want, got); err != nil || diff != "" {
			t.Errorf("%s: %v\n%s", name, err, diff)
		}
	}
}

// TestNullsThatAreRefused checks that a sample without tokens, and lists with nulls, are refused.
func TestNullsThatAreRefused(t *testing.T) {
	for name, want := range map[string]string{
		"null-inputs":   "column inputs is not a list of integers",
		"null-sample":   "row 1: invalid samples: 0 tokens",
		"empty-sample":  "row 1: invalid samples: 0 tokens",
		"null-token":    "row 0: invalid samples: null in a list",
		"null-label":    "row 0: invalid samples: null in a list",
		"empty-labels":  "row 0: invalid samples: 0 labels for 2 tokens",
		"empty-lengths": "row 0: invalid samples: sequence_lengths cover 0 of 2 tokens",
		"no-rows":       "no rows",
	} {
		d, err := Open(filepath.Join("testdata", "nulls", name+".parquet"), Options{SeqLen: 4})
		if err == nil {
			var indices []uint64
			for i := range d.Len() {
				indices = append(indices, i)
			}
			_, err = d.Read(t.Context(), indices)
			_ = d.Close()
		}
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %s", name, err, want)
		}
	}
}
