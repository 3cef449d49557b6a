package modelarchive

import (
	"bytes"
	"encoding/binary"
	"os"
	"path/filepath"
	"testing"

	"lukechampine.com/blake3"

	"github.com/psyche-go/psyche/files/checkpoint"
)

// archiveOf packs arbitrary files, as a malicious host can.
func archiveOf(names []string, contents ...[]byte) []byte {
	b := append([]byte(magic), byte(len(names)), byte(len(names)>>8))
	for i, name := range names {
		hash := blake3.Sum256(contents[i])
		b = append(append(b, byte(len(name))), name...)
		b = append(binary.LittleEndian.AppendUint64(b, uint64(len(contents[i]))), hash[:]...)
	}
	return append(b, bytes.Join(contents, nil)...)
}

// TestUnpackWantsAModelThatCanBeRead checks that files whose hashes are correct but that are not a
// model are not kept. Otherwise the next start would use them.
func TestUnpackWantsAModelThatCanBeRead(t *testing.T) {
	dir := model(t)
	read := func(name string) []byte {
		content, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil {
			t.Fatal(err)
		}
		return content
	}
	config, weights := read("config.json"), read("model.safetensors")
	for name, packed := range map[string][]byte{
		"no config":      archiveOf([]string{"model.safetensors"}, weights),
		"another config": archiveOf([]string{"config.json", "model.safetensors"}, []byte("{}"), weights),
		"no weights":     archiveOf([]string{"config.json"}, config),
		"another shape":  archiveOf([]string{"config.json", "model.safetensors"}, bytes.Replace(config, []byte(`"vocab_size":2`), []byte(`"vocab_size":9`), 1), weights),
		"shards that are not there": archiveOf([]string{"config.json", "model.safetensors.index.json"}, config,
			[]byte(`{"weight_map":{"model.norm.weight":"model-00001-of-00001.safetensors"}}`)),
		"another index": archiveOf([]string{"config.json", "model-00001-of-00001.safetensors", "model.safetensors.index.json"}, config, weights,
			[]byte(`{"weight_map":{"a":"model-00001-of-00001.safetensors"}}`)),
	} {
		got := filepath.Join(t.TempDir(), "got")
		err := Unpack(bytes.NewReader(packed), got)
		if _, read := checkpoint.ReadDir(got); err == nil && read != nil {
			t.Errorf("%s: is kept, but: %v", name, read)
		}
	}
	got := filepath.Join(t.TempDir(), "got")
	if err := Unpack(bytes.NewReader(archiveOf([]string{"config.json", "model.safetensors"}, config, weights)), got); err != nil {
		t.Error(err)
	}
}
