package checkpoint

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/psyche-go/psyche/base/filestart"
	"github.com/psyche-go/psyche/base/golden"
)

// TestReadDirTakesPythonsConstants: json.dump writes NaN and Infinity. In a field that is read they are refused.
func TestReadDirTakesPythonsConstants(t *testing.T) {
	for added, ok := range map[string]bool{
		`"time_step_limit":[0.0,Infinity],`: true, `"a":{"b":-Infinity,"c":NaN},`: true, `"a":"NaN, Infinity",`: true,
		`"num_nextn_predict_layers":NaN,`: false,
	} {
		dir := filepath.Join(t.TempDir(), "model")
		if err := WriteDir(dir, sample(1)); err != nil {
			t.Fatal(err)
		}
		write(t, dir, "config.json", strings.Replace(config, "{", "{"+added, 1))
		_, err := ReadDir(dir)
		if ok && err != nil || !ok && !errors.Is(err, ErrInvalid) {
			t.Errorf("%s: error %v, accepted %v", added, err, ok)
		} else if !ok {
			golden.Message(t, added, err)
		}
	}
}

// TestReadDirNamesEncodings: files of JSON are UTF-8 without a byte order mark, as for Python. The errors name the file.
func TestReadDirNamesEncodings(t *testing.T) {
	const pointer = "version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 1\n"
	for _, name := range []string{"config.json", "model.safetensors.index.json"} {
		for start, want := range map[string]error{
			"\ufeff{}": filestart.ErrMark, "\xff\xfe{\x00}\x00": filestart.ErrUTF16, "\xfe\xff\x00{\x00}": filestart.ErrUTF16, "{\x00}\x00": filestart.ErrUTF16,
			"\xff\xfe\x00\x00{\x00\x00\x00": filestart.ErrUTF32, pointer: filestart.ErrPointer, "\x1f\x8b\x08": filestart.ErrPacked, "": nil, "[]": nil, "nul": nil,
		} {
			dir := filepath.Join(t.TempDir(), "model")
			if err := WriteDir(dir, sample(1)); err != nil {
				t.Fatal(err)
			}
			reindex(t, dir, func(map[string]string) {})
			write(t, dir, name, start)
			if _, err := ReadDir(dir); !errors.Is(err, ErrInvalid) || want != nil && !errors.Is(err, want) || !strings.Contains(err.Error(), name) {
				t.Errorf("%s of %q: %v, want %v", name, start, err, want)
			}
		}
	}
}

// TestReadDirTakesIndexWithConstants: only the names of an index are read.
func TestReadDirTakesIndexWithConstants(t *testing.T) {
	for _, metadata := range []string{"NaN", "Infinity", `{"total_size":NaN}`, `{"total_size":"7"}`, `{"total_size":1.5e10}`, "null", `{"a":[-Infinity,"NaN"]}`} {
		dir := filepath.Join(t.TempDir(), "model")
		if err := WriteDir(dir, sample(1)); err != nil {
			t.Fatal(err)
		}
		reindex(t, dir, func(map[string]string) {})
		index, err := os.ReadFile(filepath.Join(dir, indexFile))
		if err != nil {
			t.Fatal(err)
		}
		write(t, dir, indexFile, strings.Replace(string(index), "{", `{"metadata":`+metadata+`,`, 1))
		if _, err := ReadDir(dir); err != nil {
			t.Errorf("metadata %s: %v", metadata, err)
		}
	}
}

// TestReadDirTakesFurtherLayers reads folders whose tensors are of more layers than the model
// has: such as predict further tokens.
func TestReadDirTakesFurtherLayers(t *testing.T) {
	for further, ok := range map[string]bool{
		"null": false, "-1": false, "0": false, "1": true, "2": true, "64": true, "65": false,
	} {
		s := sample(1)
		layer := s.Tensors[1]
		layer.Name = "model.layers.1.mlp.up_proj.weight"
		s.Tensors = slices.Insert(s.Tensors, 2, layer)
		s.Files[0].Data = []byte(strings.Replace(config, `layers":1`, `layers":2`, 1))
		dir := filepath.Join(t.TempDir(), "model")
		if err := WriteDir(dir, s); err != nil {
			t.Fatal(err)
		}
		write(t, dir, "config.json", strings.Replace(config, "{", `{"num_nextn_predict_layers":`+further+`,`, 1))
		_, err := ReadDir(dir)
		if ok && err != nil || !ok && !errors.Is(err, ErrInvalid) {
			t.Errorf("num_nextn_predict_layers %s: error %v, accepted %v", further, err, ok)
		} else if !ok {
			golden.Message(t, further, err)
		}
	}
}
