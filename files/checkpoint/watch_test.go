package checkpoint

import (
	"path/filepath"
	"testing"
)

// TestWatch checks that reading and hashing a folder, of one file or of shards, reports the
// progress up to the end.
func TestWatch(t *testing.T) {
	for _, shardSize := range []int64{maxShardSize, 20} {
		dir := filepath.Join(t.TempDir(), "model")
		if err := writeDir(dir, sample(7), shardSize, nil); err != nil {
			t.Fatal(err)
		}
		for name, read := range map[string]func(Watch) error{
			"read":   func(watch Watch) error { _, err := ReadDirWatched(dir, watch); return err },
			"hashed": func(watch Watch) error { _, err := DigestDir(t.Context(), dir, watch); return err },
		} {
			var last, size int64
			times := 0
			err := read(func(done, all int64) {
				if done < last || all < done || size != 0 && all != size {
					t.Errorf("%s: %d of %d after %d of %d", name, done, all, last, size)
				}
				last, size = done, all
				times++
			})
			if err != nil || size == 0 || last != size || times < 2 {
				t.Errorf("%s in shards of %d bytes: %d of %d, %d reports, %v", name, shardSize, last, size, times, err)
			}
		}
	}
}
