package checkpoint

import (
	"bytes"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/psyche-go/psyche/base/fuzztest"
	"github.com/psyche-go/psyche/base/golden"
	"github.com/psyche-go/psyche/files/safetensors"
	"pgregory.net/rapid"
)

const config = `{"architectures":["LlamaForCausalLM"],"vocab_size":2,"hidden_size":3,"num_hidden_layers":1}`

func sample(step uint32) Snapshot {
	return Snapshot{
		Step: step,
		Files: []File{
			{"config.json", []byte(config)},
			{"tokenizer.json", []byte("{}")},
		},
		Tensors: []safetensors.Tensor{
			{Name: "model.embed_tokens.weight", DType: safetensors.BF16, Shape: []int64{2, 3}, Data: []byte("0123456789ab")},
			{Name: "model.layers.0.mlp.up_proj.weight", DType: safetensors.F32, Shape: []int64{2}, Data: []byte("abcdefgh")},
			{Name: "model.norm.weight", DType: safetensors.F32, Shape: []int64{1}, Data: []byte{0, 0, 0xc0, 0x7f}},
		},
	}
}

func TestManifestGolden(t *testing.T) {
	m := sample(7).Manifest()
	digest := m.Digest()
	got := fmt.Sprintf("%s\ndigest %x\n", hex.Dump(m.Encode()), digest)
	golden.Compare(t, "manifest.golden", got)
}

func TestManifestRoundTrip(t *testing.T) {
	m := sample(7).Manifest()
	got, err := DecodeManifest(m.Encode())
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(m, got); diff != "" {
		t.Error(diff)
	}
	if len(m.Blobs()) != 5 {
		t.Errorf("blobs: %v", m.Blobs())
	}
}

func TestDecodeManifestRejects(t *testing.T) {
	valid := sample(7).Manifest()
	encode := func(change func(m *Manifest)) []byte {
		m := valid
		m.Files = append([]Entry{}, m.Files...)
		m.Tensors = append([]TensorEntry{}, m.Tensors...)
		change(&m)
		return m.Encode()
	}
	tests := []struct {
		name string
		raw  []byte
	}{
		{"empty", nil},
		{"other version", append([]byte("psymf\x00\x00\x02"), valid.Encode()[8:]...)},
		{"truncated", valid.Encode()[:40]},
		{"wrong count", append([]byte(manifestMagic), 1, 0, 0, 0, 255, 255, 255, 255)},
		{"bytes after the end", append(valid.Encode(), 0)},
		{"too large", make([]byte, MaxManifestSize+1)},
		{"files out of order", encode(func(m *Manifest) { m.Files[0], m.Files[1] = m.Files[1], m.Files[0] })},
		{"tensor twice", encode(func(m *Manifest) { m.Tensors[1] = m.Tensors[0] })},
		{"path as file name", encode(func(m *Manifest) { m.Files[0].Name = "../config.json" })},
		{"tensor file as file", encode(func(m *Manifest) { m.Files[1].Name = "model.safetensors" })},
		{"huge file", encode(func(m *Manifest) { m.Files[0].Size = MaxFileSize + 1 })},
		{"unknown dtype", encode(func(m *Manifest) { m.Tensors[0].DType = "F33" })},
		{"rank", encode(func(m *Manifest) { m.Tensors[0].Shape = make([]int64, 9) })},
		{"overflow", encode(func(m *Manifest) { m.Tensors[0].Shape = []int64{1 << 40, 1 << 40} })},
		{"reserved tensor name", encode(func(m *Manifest) { m.Tensors[0].Name = "__metadata__" })},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			_, err := DecodeManifest(test.raw)
			if !errors.Is(err, ErrInvalid) {
				t.Errorf("error = %v, want ErrInvalid", err)
			}
			golden.Message(t, test.name, err)
		})
	}
}

func TestAssemble(t *testing.T) {
	s := sample(7)
	content := map[[32]byte][]byte{}
	m := s.Manifest()
	for i, e := range m.Files {
		content[e.Hash] = s.Files[i].Data
	}
	for i, e := range m.Tensors {
		content[e.Hash] = s.Tensors[i].Data
	}
	get := func(hash [32]byte, _ uint64) ([]byte, error) { return content[hash], nil }
	got, err := m.Assemble(get)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(s, got); diff != "" {
		t.Error(diff)
	}
	content[m.Tensors[1].Hash] = []byte("abcdefgX")
	if _, err := m.Assemble(get); !errors.Is(err, ErrInvalid) || !strings.Contains(err.Error(), m.Tensors[1].Name) {
		t.Errorf("error = %v, want ErrInvalid naming the tensor", err)
	}
}

// TestDirRoundTrip writes a checkpoint as one file and as shards, each over an older checkpoint.
func TestDirRoundTrip(t *testing.T) {
	for _, shardSize := range []int64{maxShardSize, 20, 1} {
		t.Run(fmt.Sprint(shardSize), func(t *testing.T) {
			parent := t.TempDir()
			dir := filepath.Join(parent, "deeper", "model")
			for step := range uint32(3) {
				s := sample(step)
				if err := writeDir(dir, s, shardSize, nil); err != nil {
					t.Fatal(err)
				}
				got, err := ReadDir(dir)
				if err != nil {
					t.Fatal(err)
				}
				if diff := cmp.Diff(s, got); diff != "" {
					t.Error(diff)
				}
			}
			if entries, _ := os.ReadDir(filepath.Dir(dir)); len(entries) != 1 {
				t.Errorf("left %v behind", entries)
			}
		})
	}
}

func TestWriteDirOverEmptyFolderAndWithExtra(t *testing.T) {
	dir := t.TempDir()
	extra := Extra{"optimizer.safetensors", func(path string) error { return safetensors.Write(path, nil, nil) }}
	for range 2 {
		if err := WriteDir(dir, sample(1), extra); err != nil {
			t.Fatal(err)
		}
		if _, err := os.Stat(filepath.Join(dir, extra.Name)); err != nil {
			t.Error(err)
		}
	}
}

func TestWriteDirLeavesOtherFoldersAlone(t *testing.T) {
	tests := []struct {
		name  string
		files []string
	}{
		{"no checkpoint", []string{"thesis.tex"}},
		{"checkpoint and more", []string{"config.json", "model.safetensors", "notes.txt"}},
		{"folder inside", []string{"config.json", ".git/HEAD"}},
		{"no config", []string{"model.safetensors"}},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			parent := t.TempDir()
			dir := filepath.Join(parent, "dir")
			for _, name := range test.files {
				path := filepath.Join(dir, name)
				if err := os.MkdirAll(filepath.Dir(path), 0o777); err != nil {
					t.Fatal(err)
				}
				if err := os.WriteFile(path, []byte("mine"), 0o666); err != nil {
					t.Fatal(err)
				}
			}
			if err := WriteDir(dir, sample(1)); !errors.Is(err, errOccupied) {
				t.Errorf("error = %v, want errOccupied", err)
			}
			for _, name := range test.files {
				if data, err := os.ReadFile(filepath.Join(dir, name)); err != nil || string(data) != "mine" {
					t.Errorf("%s: got %q, %v; want nil error and string(data) == \"mine\"", name, data, err)
				}
			}
			if entries, _ := os.ReadDir(parent); len(entries) != 1 {
				t.Errorf("left %v behind", entries)
			}
		})
	}
}

func TestFailedWriteKeepsTheOld(t *testing.T) {
	parent := t.TempDir()
	dir := filepath.Join(parent, "model")
	if err := WriteDir(dir, sample(1)); err != nil {
		t.Fatal(err)
	}
	failure := errors.New("disk full")
	if err := WriteDir(dir, sample(2), Extra{"optimizer.safetensors", func(string) error { return failure }}); !errors.Is(err, failure) {
		t.Errorf("error = %v", err)
	}
	got, err := ReadDir(dir)
	if err != nil || got.Step != 1 {
		t.Errorf("step %d, %v, want the old checkpoint", got.Step, err)
	}
	if entries, _ := os.ReadDir(parent); len(entries) != 1 {
		t.Errorf("left %v behind", entries)
	}
}

func TestReadDirRejects(t *testing.T) {
	tests := []struct {
		name   string
		change func(t *testing.T, dir string)
	}{
		{"no config", func(t *testing.T, dir string) { remove(t, dir, "config.json") }},
		{"no tensors", func(t *testing.T, dir string) { remove(t, dir, "model.safetensors") }},
		{"config is no JSON", func(t *testing.T, dir string) { write(t, dir, "config.json", "{") }},
		{"no architecture", func(t *testing.T, dir string) { write(t, dir, "config.json", "{}") }},
		{"vocabulary differs", func(t *testing.T, dir string) {
			write(t, dir, "config.json", strings.Replace(config, `"vocab_size":2`, `"vocab_size":9`, 1))
		}},
		{"layers differ", func(t *testing.T, dir string) {
			write(t, dir, "config.json", strings.Replace(config, `layers":1`, `layers":2`, 1))
		}},
		{"truncated tensors", func(t *testing.T, dir string) {
			path := filepath.Join(dir, "model.safetensors")
			info, err := os.Stat(path)
			if err != nil {
				t.Fatal(err)
			}
			if err := os.Truncate(path, info.Size()-1); err != nil {
				t.Fatal(err)
			}
		}},
		{"index names a path", func(t *testing.T, dir string) {
			remove(t, dir, "model.safetensors")
			write(t, dir, "model.safetensors.index.json", `{"weight_map":{"a":"../model.safetensors"}}`)
		}},
		{"index is empty", func(t *testing.T, dir string) {
			remove(t, dir, "model.safetensors")
			write(t, dir, "model.safetensors.index.json", `{"metadata":{"total_size":0}}`)
		}},
		{"shard is missing", func(t *testing.T, dir string) {
			remove(t, dir, "model.safetensors")
			write(t, dir, "model.safetensors.index.json", `{"weight_map":{"a":"model-00001-of-00002.safetensors"}}`)
		}},
		{"shard lacks a tensor", func(t *testing.T, dir string) {
			if err := os.Rename(filepath.Join(dir, "model.safetensors"), filepath.Join(dir, "model-00001-of-00001.safetensors")); err != nil {
				t.Fatal(err)
			}
			write(t, dir, "model.safetensors.index.json", `{"weight_map":{"a":"model-00001-of-00001.safetensors"}}`)
		}},
		{"index names too much", func(t *testing.T, dir string) {
			reindex(t, dir, func(map[string]string) {}, "ghost")
		}},
		{"index names too little", func(t *testing.T, dir string) {
			reindex(t, dir, func(names map[string]string) { delete(names, "model.norm.weight") })
		}},
		{"index names two too many", func(t *testing.T, dir string) {
			reindex(t, dir, func(map[string]string) {}, "mtp.fc.weight", "ghost")
		}},
		{"index names no shard", func(t *testing.T, dir string) {
			reindex(t, dir, func(names map[string]string) { names["model.norm.weight"] = "" })
		}},
		{"index names a shard that is absent", func(t *testing.T, dir string) {
			reindex(t, dir, func(names map[string]string) {
				for name := range names {
					names[name] = "model-00009-of-00009.safetensors"
				}
			})
		}},
		{"index puts a tensor elsewhere", func(t *testing.T, dir string) {
			reindex(t, dir, func(names map[string]string) { names["model.embed_tokens.weight"] = "model-00002-of-00001.safetensors" })
		}},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			dir := filepath.Join(t.TempDir(), "model")
			if err := WriteDir(dir, sample(1)); err != nil {
				t.Fatal(err)
			}
			test.change(t, dir)
			_, err := ReadDir(dir)
			golden.Message(t, test.name, err)
		})
	}
}

// reindex turns a folder into a checkpoint of one shard with an index. The index lists the tensors
// of the shard and the names in more, after change has changed it.
func reindex(t *testing.T, dir string, change func(map[string]string), more ...string) {
	t.Helper()
	s, err := ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	const shard = "model-00001-of-00001.safetensors"
	if err := os.Rename(filepath.Join(dir, "model.safetensors"), filepath.Join(dir, shard)); err != nil {
		t.Fatal(err)
	}
	names := map[string]string{}
	for _, tensor := range s.Tensors {
		names[tensor.Name] = shard
	}
	for _, name := range more {
		names[name] = shard
	}
	change(names)
	text, err := json.Marshal(map[string]any{"weight_map": names})
	if err != nil {
		t.Fatal(err)
	}
	write(t, dir, "model.safetensors.index.json", string(text))
	if slices.Contains(slices.Collect(maps.Values(names)), "model-00002-of-00001.safetensors") {
		content, err := os.ReadFile(filepath.Join(dir, shard))
		if err != nil {
			t.Fatal(err)
		}
		write(t, dir, "model-00002-of-00001.safetensors", string(content))
	}
}

func remove(t *testing.T, dir, name string) {
	t.Helper()
	if err := os.Remove(filepath.Join(dir, name)); err != nil {
		t.Fatal(err)
	}
}

func write(t *testing.T, dir, name, text string) {
	t.Helper()
	if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o666); err != nil {
		t.Fatal(err)
	}
}

func TestSplitKeepsEverything(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		sizes := rapid.SliceOfN(rapid.IntRange(0, 9), 0, 20).Draw(t, "sizes")
		limit := rapid.Int64Range(1, 20).Draw(t, "limit")
		tensors := make([]safetensors.Tensor, len(sizes))
		for i, size := range sizes {
			tensors[i].Data = make([]byte, size)
		}
		total := 0
		for _, shard := range split(tensors, limit) {
			sum := int64(0)
			for _, tensor := range shard {
				sum += int64(len(tensor.Data))
			}
			if sum > limit && len(shard) > 1 {
				t.Fatalf("shard of %d bytes over %d", sum, limit)
			}
			total += len(shard)
		}
		if total != len(tensors) {
			t.Fatalf("%d of %d tensors", total, len(tensors))
		}
	})
}

func FuzzDecodeManifest(f *testing.F) {
	f.Add(sample(7).Manifest().Encode())
	f.Add(Manifest{}.Encode())
	fuzztest.Run(f, func(t *testing.T, b []byte) {
		m, err := DecodeManifest(b)
		if err != nil {
			if !errors.Is(err, ErrInvalid) {
				t.Fatalf("error %v is not ErrInvalid", err)
			}
			return
		}
		if !bytes.Equal(m.Encode(), b) {
			t.Fatal("two encodings of one manifest")
		}
	})
}

func writeDir(dir string, s Snapshot, shardSize int64, extras []Extra) error {
	return writeDirThrough(dir, s, shardSize, whole, extras)
}
