package preprocessed

import (
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/psyche-go/psyche/base/golden"
)

// masked is a row as tokenizers of Hugging Face write it.
type masked struct {
	IDs  []int32 `parquet:"input_ids,list"`
	Mask []int8  `parquet:"attention_mask,list"`
}

// TestMaskedTokensAreNotLearned checks that padding is never a target and gets no attention, on
// either side, with and without labels.
func TestMaskedTokensAreNotLearned(t *testing.T) {
	const no = IgnoreLabel
	type labelled struct {
		IDs    []int32 `parquet:"input_ids,list"`
		Mask   []int8  `parquet:"attention_mask,list"`
		Labels []int32 `parquet:"labels,list"`
	}
	type placed struct {
		IDs       []int32 `parquet:"input_ids,list"`
		Mask      []int8  `parquet:"attention_mask,list"`
		Labels    []int32 `parquet:"labels,list"`
		Positions []int32 `parquet:"position_ids,list"`
	}
	type packedMask struct {
		IDs     []int32 `parquet:"input_ids,list"`
		Mask    []bool  `parquet:"attention_mask,list"`
		Lengths []int32 `parquet:"sequence_lengths,list"`
	}
	type completion struct {
		IDs  []int32 `parquet:"input_ids,list"`
		Mask []int64 `parquet:"completion_mask,list"`
	}
	type assistant struct {
		IDs  []int32 `parquet:"input_ids,list"`
		Mask []int64 `parquet:"attention_mask,list"`
		Said []int64 `parquet:"assistant_masks,list"`
	}
	for name, test := range map[string]struct {
		file []byte
		want []Sample
	}{
		"right": {
			encode(t, []masked{{[]int32{5, 6, 7, 0, 0}, []int8{1, 1, 1, 0, 0}}, {[]int32{5, 6, 7, 8, 9}, []int8{1, 1, 1, 1, 1}}}),
			[]Sample{
				{Tokens: []int32{5, 6, 7, 0, 0}, Labels: []int32{no, 6, 7, no, no}, Positions: []int32{0, 1, 2, 3, 4}},
				{Tokens: []int32{5, 6, 7, 8, 9}, Labels: []int32{no, 6, 7, 8, 9}, Positions: []int32{0, 1, 2, 3, 4}},
			},
		},
		"left": {
			encode(t, []masked{{[]int32{0, 0, 5, 6, 7}, []int8{0, 0, 1, 1, 1}}, {[]int32{0, 5, 6, 7, 0}, []int8{0, 1, 1, 1, 0}}}),
			[]Sample{
				{Tokens: []int32{0, 0, 5, 6, 7}, Labels: []int32{no, no, no, 6, 7}, Positions: []int32{0, 1, 0, 1, 2}},
				{Tokens: []int32{0, 5, 6, 7, 0}, Labels: []int32{no, no, 6, 7, no}, Positions: []int32{0, 0, 1, 2, 3}},
			},
		},
		"only padding": {
			encode(t, []masked{{[]int32{0, 0}, []int8{0, 0}}}),
			[]Sample{{Tokens: []int32{0, 0}, Labels: []int32{no, no}, Positions: []int32{0, 1}}},
		},
		"labels of padding": {
			encode(t, []labelled{{[]int32{0, 5, 6, 0}, []int8{0, 1, 1, 0}, []int32{0, 5, 6, 0}}}),
			[]Sample{{Tokens: []int32{0, 5, 6, 0}, Labels: []int32{no, no, 6, no}, Positions: []int32{0, 0, 1, 2}}},
		},
		"padding before a text with positions": {
			encode(t, []placed{{[]int32{0, 0, 5, 6}, []int8{0, 0, 1, 1}, []int32{0, 0, 5, 6}, []int32{0, 1, 0, 1}}}),
			[]Sample{{Tokens: []int32{0, 0, 5, 6}, Labels: []int32{no, no, no, 6}, Positions: []int32{0, 1, 0, 1}}},
		},
		"packed": {
			encode(t, []packedMask{{[]int32{5, 6, 7, 8, 0}, []bool{true, true, true, true, false}, []int32{2, 2}}}),
			[]Sample{{Tokens: []int32{5, 6, 7, 8, 0}, Labels: []int32{no, 6, no, 8, no}, Positions: []int32{0, 1, 0, 1, 0}}},
		},
		"completion": {
			encode(t, []completion{{[]int32{5, 6, 7}, []int64{0, 0, 1}}}),
			[]Sample{{Tokens: []int32{5, 6, 7}, Labels: []int32{no, no, 7}}},
		},
		"two masks": {
			encode(t, []assistant{{[]int32{5, 6, 7, 0}, []int64{1, 1, 1, 0}, []int64{0, 1, 0, 1}}}),
			[]Sample{{Tokens: []int32{5, 6, 7, 0}, Labels: []int32{no, 6, no, no}, Positions: []int32{0, 1, 2, 3}}},
		},
	} {
		path := filepath.Join(t.TempDir(), "a.parquet")
		write(t, path, test.file)
		d := open(t, path, Options{SeqLen: 5})
		var indices []uint64
		for i := range d.Len() {
			indices = append(indices, i)
		}
		got, err := d.Read(t.Context(), indices)
		if diff := cmp.Diff(test.want, got); err != nil || diff != "" {
			t.Errorf("%s: %v\n%s", name, err, diff)
		}
	}
}

// TestMasksThatAreRefused checks that a mask that cannot be applied as its writer intended is an
// error.
func TestMasksThatAreRefused(t *testing.T) {
	type fractions struct {
		IDs  []int32   `parquet:"input_ids,list"`
		Mask []float32 `parquet:"attention_mask,list"`
	}
	type flat struct {
		IDs  []int32 `parquet:"input_ids,list"`
		Mask int32   `parquet:"loss_mask"`
	}
	for name, file := range map[string][]byte{
		"hole":      encode(t, []masked{{[]int32{5, 6, 7}, []int8{1, 0, 1}}}),
		"short":     encode(t, []masked{{[]int32{5, 6, 7}, []int8{1, 1}}}),
		"numbered":  encode(t, []masked{{[]int32{5, 6, 7}, []int8{1, 2, 2}}}),
		"negative":  encode(t, []masked{{[]int32{5, 6, 7}, []int8{1, 1, -1}}}),
		"fractions": encode(t, []fractions{{[]int32{5, 6}, []float32{1, 0}}}),
		"no list":   encode(t, []flat{{[]int32{5, 6}, 1}}),
	} {
		path := filepath.Join(t.TempDir(), "a.parquet")
		write(t, path, file)
		d, err := Open(path, Options{SeqLen: 5})
		if err == nil {
			_, err = d.Read(t.Context(), []uint64{0})
			_ = d.Close()
		}
		golden.Message(t, name, err)
	}
}
