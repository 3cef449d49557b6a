package preprocessed

import (
	"errors"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/psyche-go/psyche/base/golden"
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
	for _, name := range []string{"null-inputs", "null-sample", "empty-sample", "null-token", "null-label", "empty-labels", "empty-lengths", "no-rows"} {
		d, err := Open(filepath.Join("testdata", "nulls", name+".parquet"), Options{SeqLen: 4})
		if err == nil {
			var indices []uint64
			for i := range d.Len() {
				indices = append(indices, i)
			}
			_, err = d.Read(t.Context(), indices)
			_ = d.Close()
		}
		if !errors.Is(err, ErrInvalid) {
			t.Errorf("%s: got %v; want error ErrInvalid", name, err)
		}
		golden.Message(t, name, err)
	}
}
