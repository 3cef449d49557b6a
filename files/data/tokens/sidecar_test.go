package tokens

import (
	"context"
	"os"
	"path/filepath"
	"testing"

	"github.com/psyche-go/psyche/base/fuzztest"
)

// named is a file with a different name.
type named struct {
	*memory
	name string
}

func (n named) Name() string { return n.name }

func FuzzSidecar(f *testing.F) {
	for _, name := range []string{"datatrove-4.ds.metadata", "megatron-int32.idx", "megatron-int64.idx"} {
		text, err := os.ReadFile(filepath.Join("..", "local", "testdata", "formats", name))
		if err != nil {
			f.Fatal(err)
		}
		f.Add(text, filepath.Ext(name) == indexEnding)
	}
	fuzztest.Run(f, func(t *testing.T, text []byte, index bool) {
		ending := metadataEnding
		if index {
			ending = indexEnding
		}
		s, found, err := ReadSidecar(context.Background(), named{&memory{data: text}, "a" + ending})
		if found && (err != nil || s.TokenSize != 2 && s.TokenSize != 4 && s.TokenSize != 8) {
			t.Fatalf("%+v, %v", s, err)
		}
	})
}
