package checkpoint

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"testing"
)

func TestDigestDir(t *testing.T) {
	for _, shardSize := range []int64{maxShardSize, 20, 1} {
		t.Run(fmt.Sprint(shardSize), func(t *testing.T) {
			dir := filepath.Join(t.TempDir(), "model")
			s := sample(7)
			extra := Facts{RunID: "run", Digest: fmt.Sprintf("%064d", 0)}.Extra()
			if err := writeDir(dir, s, shardSize, []Extra{extra}); err != nil {
				t.Fatal(err)
			}
			if got, err := DigestDir(t.Context(), dir, nil); err != nil || got != s.Manifest().Digest() {
				t.Errorf("digest %x, %v, want the digest of the snapshot", got[:8], err)
			}
			ended, end := context.WithCancelCause(t.Context())
			cause := errors.New("ended")
			end(cause)
			if _, err := DigestDir(ended, dir, nil); !errors.Is(err, cause) {
				t.Errorf("after its context: %v", err)
			}
		})
	}
}

// tensorFile creates a file of tensors from its header and a number of zero bytes as data.
func tensorFile(t *testing.T, path, header string, data int64) {
	t.Helper()
	content := append(binary.LittleEndian.AppendUint64(nil, uint64(len(header))), header...)
	err := errors.Join(os.WriteFile(path, content, 0o600), os.Truncate(path, int64(len(content))+data))
	if err != nil {
		t.Fatal(err)
	}
}

// TestDigestDirHoldsNoTensor hashes a file that is larger than the memory that the function may
// allocate.
func TestDigestDirHoldsNoTensor(t *testing.T) {
	const size = 256 << 20
	dir := t.TempDir()
	write(t, dir, ConfigFile, config)
	tensorFile(t, filepath.Join(dir, singleFile), fmt.Sprintf(`{"w":{"dtype":"U8","shape":[%d],"data_offsets":[0,%d]}}`, size, size), size)
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	if _, err := DigestDir(t.Context(), dir, nil); err != nil {
		t.Fatal(err)
	}
	runtime.ReadMemStats(&after)
	if allocated := after.TotalAlloc - before.TotalAlloc; allocated > size/8 {
		t.Errorf("allocated %d bytes for a tensor of %d", allocated, size)
	}
}

// TestDigestDirRejects checks that a file with bytes that the digest does not cover is refused.
func TestDigestDirRejects(t *testing.T) {
	const tensor = `{"dtype":"U8","shape":[4],"data_offsets":[%d,%d]}`
	at := func(begin, end int64) string { return fmt.Sprintf(tensor, begin, end) }
	tests := map[string]struct {
		header string
		data   int64
	}{
		"bytes behind":       {`{"w":` + at(0, 4) + `}`, 5},
		"bytes before":       {`{"w":` + at(1, 5) + `}`, 5},
		"behind the end":     {`{"w":` + at(4, 8) + `}`, 4},
		"negative":           {`{"w":` + at(-4, 0) + `}`, 4},
		"of another size":    {`{"w":` + at(0, 3) + `}`, 4},
		"far away":           {`{"w":` + at(1<<62, 1<<62+4) + `}`, 4},
		"twice the same":     {`{"v":` + at(0, 4) + `,"w":` + at(0, 4) + `}`, 4},
		"a name twice":       {`{"w":` + at(0, 4) + `,"w":` + at(4, 8) + `}`, 8},
		"unknown type":       {`{"w":{"dtype":"X","shape":[4],"data_offsets":[0,4]}}`, 4},
		"too large a shape":  {`{"w":{"dtype":"U8","shape":[4611686018427387904,4],"data_offsets":[0,4]}}`, 4},
		"no JSON":            {`{"w":`, 4},
		"other JSON":         {`{"w":[0,4]}`, 4},
		"metadata of others": {`{"__metadata__":{"step":7},"w":` + at(0, 4) + `}`, 4},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			write(t, dir, ConfigFile, config)
			tensorFile(t, filepath.Join(dir, singleFile), test.header, test.data)
			if _, err := DigestDir(t.Context(), dir, nil); !errors.Is(err, ErrInvalid) {
				t.Errorf("error = %v, want ErrInvalid", err)
			}
		})
	}
	for name, content := range map[string]string{"empty": "", "long header": "\xff\xff\xff\xff\xff\xff\xff\x7f{}", "cut header": "\x10\x00\x00\x00\x00\x00\x00\x00{}"} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			write(t, dir, ConfigFile, config)
			write(t, dir, singleFile, content)
			if _, err := DigestDir(t.Context(), dir, nil); !errors.Is(err, ErrInvalid) {
				t.Errorf("error = %v, want ErrInvalid", err)
			}
		})
	}
}
